"""One line an event, with what is particular about it."""

from typing import Any

import pytest

from runfold.cli import event_lines

EVENT = {"run_id": "r-1", "seq": 31, "at": "2026-01-02T03:04:05.678Z", "step": 18}


def line(**fields: Any) -> str:
    return event_lines.event_line({**EVENT, **fields})


def test_an_event_is_one_line_with_seq_time_step_and_what() -> None:
    shown = line(
        type="tool_call_requested",
        tool="create_ticket",
        arguments={"title": "x\ny"},
        idempotency_key="r-1:18",
        attempt=2,
        why="takeover",
    )
    assert shown == (
        "   31  2026-01-02 03:04:05     18  tool_call_requested   "
        'create_ticket({"title": "x\\ny"}) · key r-1:18 · attempt 2 (takeover)'
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"type": "run_started", "agent": "research", "input": {"q": 1}}, 'agent research · {"q": 1}'),
        (
            {
                "type": "model_responded",
                "text": None,
                "tool_calls": [{"id": "c1", "name": "publish", "arguments": {"a": 1}}],
                "usage": {"input_tokens": 10, "output_tokens": 5},
                "cost_usd": None,
            },
            'calls publish({"a": 1}) · 10+5 tokens · cost unknown',
        ),
        (
            {
                "type": "interrupted",
                "reason": "awaiting_approval",
                "wait_id": "r-1:19",
                "detail": {"tool": "publish", "arguments": {"a": 1}, "message": None},
            },
            'awaiting_approval · r-1:19 · publish({"a": 1})',
        ),
        (
            {
                "type": "resumed",
                "reason": "awaiting_approval",
                "wait_id": "r-1:19",
                "approved_by": "dana",
                "decision": "approved",
                "comment": None,
            },
            "awaiting_approval · r-1:19 · approved · by dana",
        ),
        (
            {"type": "tool_returned", "is_error": False, "source": "reconciled", "attempt": 1, "result": {"id": "T-7"}},
            'reconciled · {"id": "T-7"}',
        ),
        (
            {
                "type": "tool_returned",
                "is_error": False,
                "source": "operator",
                "resolved_by": "ops",
                "attempt": 1,
                "result": 7,
            },
            "operator · by ops · 7",
        ),
        (
            {
                "type": "resumed",
                "reason": "indeterminate",
                "wait_id": "r-1:18",
                "resumed_by": "ops",
                "decision": "absent",
            },
            "indeterminate · r-1:18 · absent · by ops",
        ),
        (
            {
                "type": "interrupted",
                "reason": "version_mismatch",
                "wait_id": "r-1:19",
                "detail": {"parts": {"prompt": {"old": "a", "new": "b"}}},
            },
            "version_mismatch · r-1:19 · prompt differs",
        ),
        (
            {"type": "version_changed", "policy": {"prompt": "operator", "tools": "compatible"}},
            "prompt accepted by operator · tools compatible",
        ),
        ({"type": "model_call_requested", "message_count": 1}, "1 message"),
        (
            {"type": "run_cancelled", "reason": "too dear", "open_keys": ["r-1:18"]},
            "too dear · outcome unknown: r-1:18",
        ),
        ({"type": "something_new"}, ""),
    ],
)
def test_details_say_what_is_particular(fields: dict[str, Any], told: str) -> None:
    assert event_lines.details(fields) == told


def test_every_event_of_the_contract_has_its_details() -> None:
    from runfold.codec.log import RECORD_TYPES  # noqa: PLC0415 - only here

    assert set(event_lines._TELLERS) == set(RECORD_TYPES) - {"partition_claimed", "input_settled"}
