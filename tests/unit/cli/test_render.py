"""What people are shown: one line an event, tables that hold what matters."""

from typing import Any

import pytest

from runfold.cli import render

EVENT = {"run_id": "r-1", "seq": 31, "at": "2026-01-02T03:04:05.678Z", "step": 18}


def line(**fields: Any) -> str:
    return render.event_line({**EVENT, **fields})


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
            'calls publish({"a": 1}) · 10+5 tokens · unknown',
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
        ({"type": "run_cancelled", "open_keys": ["r-1:18"]}, "outcome unknown: r-1:18"),
        ({"type": "something_new"}, ""),
    ],
)
def test_details_say_what_is_particular(fields: dict[str, Any], told: str) -> None:
    assert render.details(fields) == told


def test_every_event_of_the_contract_has_its_details() -> None:
    from runfold.codec.log import RECORD_TYPES  # noqa: PLC0415 - only here

    assert set(render._TELLERS) == set(RECORD_TYPES) - {"partition_claimed", "input_settled"}


def test_long_values_are_cut() -> None:
    assert len(render.short("x" * 500, 80)) == 80
    assert render.short({"a": "b"}) == '{"a": "b"}'


def test_tables_hold_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    run = {
        "run_id": "run-8c1",
        "agent": "research",
        "status": "waiting",
        "step": 19,
        "seq": 40,
        "partition": 3,
        "usage": {"input_tokens": 10},
        "cost_usd": 0.5,
        "unpriced_calls": 0,
        "unaccounted_calls": 1,
        "output": None,
        "error": None,
        "parked": None,
        "version": {"revision": "r1", "model": None},
        "started_at": EVENT["at"],
        "updated_at": EVENT["at"],
        "waits": [
            {
                "run_id": "run-8c1",
                "wait_id": "run-8c1:19",
                "reason": "awaiting_approval",
                "step": 19,
                "tool": "publish",
                "arguments": {"a": 1},
                "detail": {},
                "opened_at": EVENT["at"],
            }
        ],
    }
    render.show("runs", [run])
    render.show("run", run)
    render.show("waits", [])
    shown = capsys.readouterr().out
    for part in ("run-8c1", "waiting", "$0.5000", "1 calls unaccounted for", "run-8c1:19", "publish", "nothing waits"):
        assert part in shown
