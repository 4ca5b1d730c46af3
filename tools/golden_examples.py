"""One example of every record type of the log, and their golden files in `schemas/golden/`.

A golden file holds the bytes that a release wrote and what they say; later releases must read the same out of them.
Files are written once, by `tools/check_schemas.py --write`, and never again.
"""

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from runfold.codec import log
from runfold.codec.events_json import event_json, shown
from runfold.core import events as e
from runfold.core.fence import Head
from runfold.core.payload import BlobRef, Inline, inline_json

PARTITION, OFFSET = 3, 1042

_BLOB = BlobRef("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 204_800)
_VERSION = e.Version("3f2c1ab", "p" * 64, "t" * 64, "openai:gpt-5", (("create_ticket", "a" * 64), ("refund", "b" * 64)))
_NEWER = dataclasses.replace(_VERSION, revision="77d0e21")
_ENVELOPE: dict[str, Any] = {"run_id": "run-8c1", "seq": 41, "epoch": 1000, "at": 1_767_323_045_678}
_CAUSE = e.Cause("runfold.approvals", 3, 17, "approval-5")
_MESSAGE = inline_json(
    {"kind": "response", "parts": [{"part_kind": "text", "content": "Grüße, "}, {"part_kind": "text", "content": "Ω"}]}
)


def examples() -> list[e.LogRecordBody]:
    """Give one example of every type, all optional fields set; rare values where there is a choice."""
    return [
        e.PartitionClaimed(owner="executor-1", revision="3f2c1ab", nonce="n-1", at=1_767_323_045_678),
        e.InputSettled(
            epoch=1000,
            at=1_767_323_045_678,
            cause=e.Cause("runfold.requests", 3, 16),
            outcome=e.Settlement.DEAD,
            run_id="run-8c1",
            reason="run_exists",
            detail="a run of this id exists with another input; use a new id",
        ),
        e.RunStarted(
            **{**_ENVELOPE, "seq": 0, "cause": e.Cause("runfold.requests", 3, 15)},
            agent="research",
            input=inline_json({"question": "Why?"}),
            version=_VERSION,
            first_message=inline_json("Why?"),
        ),
        *_model_examples(),
        *_tool_examples(),
        *_wait_examples(),
        e.VersionChanged(
            **_ENVELOPE,
            old=_VERSION,
            new=_NEWER,
            policy=(("revision", "accept"),),
            patches=inline_json({"migrated": True}),
            first_message=inline_json("Why?"),
        ),
        e.CancelRequested(**_ENVELOPE, cause=_CAUSE, reason="no longer needed", requested_by="ops"),
        e.RunCompleted(**_ENVELOPE, output=inline_json("Because.")),
        e.RunFailed(**_ENVELOPE, error="the planner gave up"),
        e.RunCancelled(**_ENVELOPE, reason="no longer needed", open_keys=("run-8c1:18",)),
    ]


def _model_examples() -> list[e.LogRecordBody]:
    return [
        e.ModelCallRequested(
            **_ENVELOPE,
            step=17,
            attempt=2,
            why=e.Why.TAKEOVER,
            messages_hash="c" * 64,
            message_count=33,
            params=inline_json({"model": "openai:gpt-5", "settings": {"temperature": 0.2}}),
        ),
        e.ModelResponded(
            **_ENVELOPE,
            step=17,
            attempt=2,
            message=_MESSAGE,
            message_format="pydantic-ai/1",
            tool_calls=(
                e.AskedCall("call-1", "create_ticket", Inline(b'{"title": "Broken", "priority": 1}')),
                e.AskedCall("call-2", "refund", Inline(b'{"order_id": ')),
                e.AskedCall("call-3", "publish_report", _BLOB),
            ),
            finish_reason="tool_call",
            usage=(("input_tokens", 1200), ("output_tokens", 34)),
            cost_nano_usd=12_345_678,
            model="gpt-5-2025-08-07",
        ),
        e.ModelCallFailed(**_ENVELOPE, step=17, attempt=1, error="status 503", retry_at=1_767_323_047_000),
    ]


def _tool_examples() -> list[e.LogRecordBody]:
    return [
        e.ToolCallRequested(
            **_ENVELOPE,
            step=18,
            tool="create_ticket",
            tool_call_id="call-1",
            arguments=inline_json({"title": "Broken", "priority": 1}),
            idempotency_key="run-8c1:18",
            attempt=1,
            why=e.Why.FIRST,
            recovery=e.Recovery.LOOKUP,
            timeout_ms=10_000,
            approval_id="run-8c1:17",
            key_ttl_ms=86_400_000,
            settle_ms=30_000,
            dedupe=True,
            first_requested_at=1_767_323_045_000,
        ),
        e.ToolReturned(
            **_ENVELOPE,
            step=18,
            tool_call_id="call-1",
            attempt=1,
            source=e.Source.OPERATOR,
            outcome=e.Outcome.SUCCESS,
            result=_BLOB,
            for_model=inline_json("ticket T-7"),
            patch=inline_json({"ticket": "T-7"}),
            resolved_by="ops",
        ),
        e.StatePatched(**_ENVELOPE, step=18, key="ticket", value=inline_json("T-7"), remaining=1),
    ]


def _wait_examples() -> list[e.LogRecordBody]:
    arguments = inline_json({"body": "…"})
    return [
        e.Interrupted(
            **_ENVELOPE,
            step=19,
            wait_id="run-8c1:19",
            reason=e.WaitReason.AWAITING_APPROVAL,
            detail=inline_json({"message": "Publish?", "words": 900}),
            tool="publish_report",
            tool_call_id="call-3",
            arguments=arguments,
            arguments_digest=arguments.digest,
            expires_at=1_767_409_445_678,
        ),
        e.Resumed(
            **_ENVELOPE,
            cause=_CAUSE,
            step=19,
            wait_id="run-8c1:19",
            reason=e.WaitReason.AWAITING_APPROVAL,
            by="dana@example.com",
            decision="approved",
            comment="fine",
            accept_version=True,
        ),
    ]


def golden(record: e.LogRecordBody) -> dict[str, Any]:
    """Give the content of a golden file: the bytes as hex, and what they say."""
    head, value = log.encode(record)
    content = {"key": log.key_of(record), "head": head.hex(), "value": value.hex(), "record": plain(record)}
    if isinstance(record, get_args(e.Event)):
        content["event"] = event_json(record, partition=PARTITION, offset=OFFSET, value_of=shown)
    return content


def check_golden(path: Path) -> None:
    """Decode a golden file's bytes, and compare.

    Raises AssertionError, or UnknownRecord, where they say something else than they did.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    record = log.decode(bytes.fromhex(stored["value"]))
    log.check_head(Head.decode(bytes.fromhex(stored["head"])), record)
    log.check_key(stored["key"], record)
    _compare(stored["record"], plain(record), path.name)
    if isinstance(record, get_args(e.Event)):
        _compare(stored["event"], event_json(record, partition=PARTITION, offset=OFFSET, value_of=shown), path.name)


def plain(value: Any) -> Any:  # noqa: ANN401 - any part of a record
    """Give any part of a record as JSON, nothing left out."""
    if isinstance(value, Inline):
        return {"inline": value.data.decode()}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def _compare(stored: Any, found: Any, where: str) -> None:  # noqa: ANN401 - any JSON value
    """Later versions may say more in an object, but nothing else."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key, value in stored.items():
            if key not in found:
                raise AssertionError(f"{where}.{key} is no longer there")
            _compare(value, found[key], f"{where}.{key}")
    elif isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        for index, (left, right) in enumerate(zip(stored, found, strict=True)):
            _compare(left, right, f"{where}[{index}]")
    elif stored != found:
        raise AssertionError(f"{where} was {stored!r}, is now {found!r}")
