"""An event as the contract shows it: one JSON object, whatever schema version the log holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from runfold.codec.log import type_name
from runfold.codec.origin import format_origin
from runfold.codec.strict_json import BadJson, loads
from runfold.core.events import (
    AskedCall,
    CancelRequested,
    Cause,
    Event,
    Interrupted,
    ModelCallFailed,
    ModelCallRequested,
    ModelResponded,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    StatePatched,
    ToolCallRequested,
    ToolReturned,
    Version,
    VersionChanged,
    WaitReason,
)
from runfold.core.payload import BlobRef, Payload

ValueOf = Callable[[Payload], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_json(event: Event, *, partition: int, offset: int, value_of: ValueOf) -> dict[str, Any]:
    """Give the JSON object of a valid event.

    Args:
        event: The event.
        partition: Where it stands.
        offset: Where it stands.
        value_of: The JSON value of a payload: ``shown``, or one that has read the object store.
    """
    step = getattr(event, "step", None)
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "type": type_name(type(event)),
        "at": timestamp(event.at),
        "epoch": event.epoch,
        "partition": partition,
        "offset": offset,
        "cause": None if event.cause is None else _cause(event.cause),
        **({} if step is None else {"step": step}),
        **_FIELDS[type(event)](event, value_of),
    }


def shown(payload: Payload) -> Any:  # noqa: ANN401 - any JSON value
    """Give the value of a payload without reading the object store: a blob is shown as where it lies."""
    if isinstance(payload, BlobRef):
        return {"$blob": payload.sha256, "size": payload.size}
    return json_value(payload.data)


def json_value(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Give the value of a payload's bytes: what they say as JSON, else their text (a model writes what it likes).

    Strict, so that what is given can be written as JSON again: no NaN, no lone surrogate.
    """
    try:
        return loads(data)
    except BadJson:
        return data.decode(errors="replace")


def timestamp(ms: int) -> str:
    """Give RFC 3339 in UTC with milliseconds, from milliseconds since 1970."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wait_detail(event: Interrupted, value_of: ValueOf) -> Any:  # noqa: ANN401 - a JSON object
    """Give the detail of a wait; for an approval, with what the approver must see."""
    detail = value_of(event.detail)
    if event.reason is not WaitReason.AWAITING_APPROVAL:
        return detail
    known = detail if isinstance(detail, dict) else {}
    return {"message": None, **known, **guarded_call(event, value_of)}


def guarded_call(event: Interrupted, value_of: ValueOf) -> dict[str, Any]:
    """Give the call that an approval guards, and until when it may be approved."""
    return {
        "tool": event.tool,
        "arguments": None if event.arguments is None else value_of(event.arguments),
        "arguments_digest": event.arguments_digest,
        "expires_at": _optional_timestamp(event.expires_at),
    }


def message_text(message: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """Derive the text of a completion from pydantic-ai's message JSON; None if it holds no text.

    As ``ModelResponse.text``: neighbouring text parts are joined, others separate paragraphs.
    """
    response = message[-1] if isinstance(message, list) and message else message
    parts = response.get("parts") if isinstance(response, dict) else None
    paragraphs: list[str] = []
    after_text = False
    for part in parts if isinstance(parts, list) else ():
        is_text = isinstance(part, dict) and part.get("part_kind") == "text" and isinstance(part.get("content"), str)
        if is_text and after_text:
            paragraphs[-1] += part["content"]
        elif is_text:
            paragraphs.append(part["content"])
        after_text = is_text
    return "\n\n".join(paragraphs) if paragraphs else None


def version_json(version: Version) -> dict[str, Any]:
    """Give the four parts of a version."""
    return {
        "revision": version.revision,
        "prompt_hash": version.prompt_hash,
        "tools_hash": version.tools_hash,
        "model": version.model,
    }


def cost_usd(nano: int | None) -> float | None:
    """Give dollars from billionths; None where the price is unknown."""
    return None if nano is None else nano / 1_000_000_000


def _cause(cause: Cause) -> dict[str, Any]:
    default_id = format_origin(cause.topic, cause.partition, cause.offset).decode()
    return {
        "topic": cause.topic,
        "partition": cause.partition,
        "offset": cause.offset,
        "id": cause.id if cause.id is not None else default_id,
    }


def _optional_timestamp(ms: int | None) -> str | None:
    return None if ms is None else timestamp(ms)


def _run_started(event: RunStarted, value_of: ValueOf) -> dict[str, Any]:
    return {"agent": event.agent, "input": value_of(event.input), "version": version_json(event.version)}


def _model_call_requested(event: ModelCallRequested, value_of: ValueOf) -> dict[str, Any]:
    return {
        "messages_hash": event.messages_hash,
        "message_count": event.message_count,
        "params": value_of(event.params),
        "attempt": event.attempt,
    }


def _model_responded(event: ModelResponded, value_of: ValueOf) -> dict[str, Any]:
    return {
        "text": message_text(value_of(event.message)),
        "tool_calls": [_asked(call, value_of) for call in event.tool_calls],
        "finish_reason": event.finish_reason,
        "usage": dict(event.usage),
        "cost_usd": cost_usd(event.cost_nano_usd),
        "model": event.model,
    }


def _asked(call: AskedCall, value_of: ValueOf) -> dict[str, Any]:
    return {"id": call.tool_call_id, "name": call.tool, "arguments": value_of(call.arguments)}


def _model_call_failed(event: ModelCallFailed, _: ValueOf) -> dict[str, Any]:
    return {"error": event.error, "attempt": event.attempt, "retry_at": _optional_timestamp(event.retry_at)}


def _tool_call_requested(event: ToolCallRequested, value_of: ValueOf) -> dict[str, Any]:
    return {
        "tool": event.tool,
        "arguments": value_of(event.arguments),
        "idempotency_key": event.idempotency_key,
        "tool_call_id": event.tool_call_id,
        "attempt": event.attempt,
        "why": event.why.value,
        "recovery": event.recovery.value,
        "timeout_ms": event.timeout_ms,
        "approval_id": event.approval_id,
        **({} if event.key_ttl_ms is None else {"key_ttl_ms": event.key_ttl_ms}),
        **({} if event.settle_ms is None else {"settle_ms": event.settle_ms}),
        **({"dedupe": True} if event.dedupe else {}),
    }


def _tool_returned(event: ToolReturned, value_of: ValueOf) -> dict[str, Any]:
    shown = {
        "tool_call_id": event.tool_call_id,
        "result": value_of(event.result),
        "is_error": event.is_error,
        "attempt": event.attempt,
        "source": event.source.value,
    }
    return shown if event.resolved_by is None else {**shown, "resolved_by": event.resolved_by}


def _state_patched(event: StatePatched, value_of: ValueOf) -> dict[str, Any]:
    return {"key": event.key, "value": value_of(event.value)}


def _interrupted(event: Interrupted, value_of: ValueOf) -> dict[str, Any]:
    return {"wait_id": event.wait_id, "reason": event.reason.value, "detail": wait_detail(event, value_of)}


def _resumed(event: Resumed, _: ValueOf) -> dict[str, Any]:
    shared = {"wait_id": event.wait_id, "reason": event.reason.value}
    if event.reason is WaitReason.AWAITING_APPROVAL:
        return {**shared, "approved_by": event.by, "decision": event.decision, "comment": event.comment}
    if event.reason is WaitReason.INDETERMINATE:
        return {**shared, "resumed_by": event.by, "decision": event.decision}
    return {**shared, "resumed_by": event.by}


def _version_changed(event: VersionChanged, value_of: ValueOf) -> dict[str, Any]:
    return {
        "from": version_json(event.old),
        "to": version_json(event.new),
        "policy": dict(event.policy),
        "patches": None if event.patches is None else value_of(event.patches),
    }


def _cancel_requested(event: CancelRequested, _: ValueOf) -> dict[str, Any]:
    return {"reason": event.reason, "requested_by": event.requested_by}


def _run_completed(event: RunCompleted, value_of: ValueOf) -> dict[str, Any]:
    return {"output": value_of(event.output)}


def _run_failed(event: RunFailed, _: ValueOf) -> dict[str, Any]:
    return {"error": event.error}


def _run_cancelled(event: RunCancelled, _: ValueOf) -> dict[str, Any]:
    return {"reason": event.reason, "open_keys": list(event.open_keys)}


_FIELDS: dict[type, Callable[[Any, ValueOf], dict[str, Any]]] = {
    RunStarted: _run_started,
    ModelCallRequested: _model_call_requested,
    ModelResponded: _model_responded,
    ModelCallFailed: _model_call_failed,
    ToolCallRequested: _tool_call_requested,
    ToolReturned: _tool_returned,
    StatePatched: _state_patched,
    Interrupted: _interrupted,
    Resumed: _resumed,
    VersionChanged: _version_changed,
    CancelRequested: _cancel_requested,
    RunCompleted: _run_completed,
    RunFailed: _run_failed,
    RunCancelled: _run_cancelled,
}
