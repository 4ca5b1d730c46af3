"""The JSON view of events has exactly the contract's fields."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from golden_examples import examples
from runfold.codec.events_json import cost_usd, event_json, json_value, message_text, shown, timestamp
from runfold.codec.log import type_name
from runfold.core import events as e
from runfold.core.payload import BlobRef, Inline, canonical_json

SHARED = "run_id seq type at epoch partition offset cause"
# As the table of the contract says, and step where it applies.
CONTRACT = {
    "run_started": "agent input version",
    "model_call_requested": "step messages_hash message_count params attempt",
    "model_responded": "step text tool_calls finish_reason usage cost_usd model",
    "model_call_failed": "step error attempt retry_at",
    "tool_call_requested": "step tool arguments idempotency_key tool_call_id attempt why recovery timeout_ms "
    "approval_id key_ttl_ms settle_ms dedupe",  # the last three only where they are set
    "tool_returned": "step tool_call_id result is_error attempt source resolved_by",
    "state_patched": "step key value",
    "interrupted": "step wait_id reason detail",
    "resumed": "step wait_id reason approved_by decision comment",
    "version_changed": "from to policy patches",
    "cancel_requested": "reason requested_by",
    "run_completed": "output",
    "run_failed": "error",
    "run_cancelled": "reason open_keys",
}
EVENTS: dict[str, Any] = {
    type_name(type(record)): record for record in examples() if isinstance(record, get_args(e.Event))
}


def view(event: e.Event) -> dict[str, Any]:
    """Show an event as it would stand at a place."""
    return event_json(event, partition=3, offset=1042, value_of=shown)


def test_the_contract_names_every_event() -> None:
    assert CONTRACT.keys() == EVENTS.keys()


@pytest.mark.parametrize("name", CONTRACT)
def test_an_event_has_exactly_the_contracts_fields(name: str) -> None:
    assert view(EVENTS[name]).keys() == set(f"{SHARED} {CONTRACT[name]}".split())


def test_an_approval_shows_what_the_approver_must_see() -> None:
    detail = view(EVENTS["interrupted"])["detail"]
    assert {"tool", "arguments", "arguments_digest", "message", "expires_at"} <= detail.keys()
    assert detail["arguments"] == {"body": "…"}
    assert detail["words"] == 900


def test_another_wait_shows_its_own_detail_and_who_closed_it() -> None:
    opened = dataclasses.replace(EVENTS["interrupted"], reason=e.WaitReason.ERROR, detail=Inline(b'{"error":"x"}'))
    assert view(opened)["detail"] == {"error": "x"}
    closed = dataclasses.replace(EVENTS["resumed"], reason=e.WaitReason.ERROR, by="ops")
    assert {"wait_id", "reason", "resumed_by"} == view(closed).keys() - set(f"{SHARED} step".split())


def test_who_settled_a_call_in_doubt_is_named_and_how() -> None:
    assert view(EVENTS["tool_returned"])["resolved_by"] == "ops"
    absent = dataclasses.replace(EVENTS["resumed"], reason=e.WaitReason.INDETERMINATE, by="ops", decision="absent")
    assert {"resumed_by": "ops", "decision": "absent"}.items() <= view(absent).items()


def test_a_cause_without_an_id_of_its_own_has_the_default_one() -> None:
    assert view(EVENTS["run_started"])["cause"] == {
        "topic": "runfold.requests",
        "partition": 3,
        "offset": 15,
        "id": "runfold.requests/3/15",
    }
    assert view(EVENTS["resumed"])["cause"]["id"] == "approval-5"


def test_arguments_are_an_object_where_they_parse() -> None:
    """A model may write anything; a blob that was not read is shown as where it lies."""
    calls = view(EVENTS["model_responded"])["tool_calls"]
    assert [call["arguments"] for call in calls] == [
        {"title": "Broken", "priority": 1},
        '{"order_id": ',
        {"$blob": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "size": 204_800},
    ]


def test_an_unknown_price_is_null() -> None:
    assert cost_usd(None) is None
    assert cost_usd(12_345_678) == pytest.approx(0.012345678)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_is_utc_with_milliseconds(ms: int, text: str) -> None:
    assert timestamp(ms) == text


@given(st.binary(max_size=40) | st.sampled_from([b"NaN", b'"\\ud800"', b"1e999", b"[" * 5000]))
def test_any_payload_can_be_shown_and_written_as_json(data: bytes) -> None:
    assert canonical_json(json_value(data))
    assert json.dumps(json_value(data), allow_nan=False)


PARTS: st.SearchStrategy[list[ModelResponsePart]] = st.lists(
    st.text().map(TextPart) | st.text().map(ThinkingPart) | st.just(ToolCallPart("t", {}, "c")), max_size=5
)


@given(PARTS)
def test_the_text_is_that_of_pydantic_ai(parts: list[ModelResponsePart]) -> None:
    """Derived from its JSON, without importing it."""
    response = ModelResponse(parts=parts)
    messages = json.loads(ModelMessagesTypeAdapter.dump_json([response]))
    assert message_text(messages) == message_text(messages[0]) == response.text


@pytest.mark.parametrize("message", [None, [], {}, "x", [1], {"parts": 1}, {"parts": [1, {"part_kind": "text"}]}])
def test_another_format_has_no_text(message: object) -> None:
    assert message_text(message) is None


def test_a_blob_is_shown_as_where_it_lies() -> None:
    assert shown(BlobRef("a" * 64, 7)) == {"$blob": "a" * 64, "size": 7}
