"""The acceptance trace, played by the demo's own driver, and what a foreign program sees of it."""

import json
from typing import Any

import pytest

from demo.checks import failures
from demo.story import PARTITIONS, RUN
from runfold.core.partitioning import partition_of
from tests.acceptance.playing import Played

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

Json = Any
EVENT_FIELDS = {"run_id", "seq", "type", "at", "epoch", "partition", "offset", "cause"}
STEP_FIELDS = {
    "model_call_requested": {"messages_hash", "message_count", "params", "attempt"},
    "model_responded": {"text", "tool_calls", "finish_reason", "usage", "cost_usd", "model"},
    "tool_call_requested": {
        "tool",
        "arguments",
        "idempotency_key",
        "tool_call_id",
        "attempt",
        "why",
        "recovery",
        "timeout_ms",
        "approval_id",
    },
    "tool_returned": {"tool_call_id", "result", "is_error", "attempt", "source"},
    "interrupted": {"wait_id", "reason", "detail"},
    "resumed": {"wait_id", "reason", "approved_by", "decision", "comment"},
}
RUN_FIELDS = {"run_started": {"agent", "input", "version"}, "run_completed": {"output"}}
SHOWN = {"run_id", "agent", "status", "step", "seq", "waits", "usage", "cost_usd", "output", "error", "version"}


def test_all_is_as_the_demo_checks_it(played: Played) -> None:
    """The demo's own checks: steps, keys, sources, one ticket per key, no answer asked for twice, spend, the row."""
    assert failures(played.told) == []


def test_the_events_have_the_fields_of_the_contract(played: Played) -> None:
    """Each type has exactly its fields, beside those that all have."""
    for event in played.told.events:
        specific = RUN_FIELDS.get(event["type"]) or {"step", *STEP_FIELDS[event["type"]]}
        assert set(event) == EVENT_FIELDS | specific, event["type"]


def test_each_input_stands_behind_the_event_that_it_caused(played: Played) -> None:
    """Start, approval and verdict each caused one event, which names topic, partition and offset of the input."""
    causes = {event["type"]: event["cause"] for event in played.told.events if event["cause"] is not None}
    assert set(causes) == {"run_started", "resumed", "tool_returned"}
    assert all(cause.keys() == {"topic", "partition", "offset", "id"} for cause in causes.values())
    assert played.told.events[0]["cause"]["id"].endswith(f".requests/{played.told.started_in}/0")
    reconciled = next(event for event in played.told.events if event.get("source") == "reconciled")
    assert reconciled["cause"]["topic"].endswith("control")


def test_a_misplaced_start_was_forwarded(played: Played) -> None:
    """Librdkafka's default partitioner put the record elsewhere than Java's: it had its one effect all the same."""
    home = partition_of(RUN, PARTITIONS)
    assert played.told.started_in != home
    assert {event["partition"] for event in played.told.events} == {home}


def test_the_killed_owner_and_its_successors_have_rising_epochs(played: Played) -> None:
    """Three executors drove the run: before the gate, before the kill, after it; epochs rise."""
    epochs = [event["epoch"] for event in played.told.events]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 3


def test_model_calls_count_their_messages(played: Played) -> None:
    """Each question holds more messages than the one before, under another hash."""
    asked = [event for event in played.told.events if event["type"] == "model_call_requested"]
    counts = [event["message_count"] for event in asked]
    assert counts == sorted(set(counts))
    assert len({event["messages_hash"] for event in asked}) == len(asked)


def test_arguments_are_recorded_with_their_defaults(played: Played) -> None:
    """The model left the priority of the second ticket out: it is recorded as 3."""
    event = next(
        event for event in played.told.events if event["type"] == "tool_call_requested" and event["step"] == 24
    )
    assert event["arguments"] == {"title": "Make the order import idempotent", "priority": 3}
    assert event["recovery"] == "lookup"


def test_the_row_of_the_waiting_run(played: Played) -> None:
    """`runfold show` of the run while no executor ran."""
    row = played.told.at_gate
    assert row.keys() >= SHOWN
    assert [wait["wait_id"] for wait in row["waits"]] == [f"{RUN}:19"]
    assert row["waits"][0]["reason"] == "awaiting_approval"
    assert (row["step"], row["waits"][0]["step"]) == (19, 19)


def test_the_run_is_over_in_every_view(played: Played) -> None:
    """Show, list and state agree, and have the contract's fields."""
    assert played.told.at_end.keys() >= SHOWN
    shared = SHOWN - {"waits"}
    shown, listed, state = (
        {k: v[k] for k in shared} for v in (played.told.at_end, played.told.listed[0], played.told.state)
    )
    assert shown == listed == state


def test_notifications_have_stable_ids(played: Played) -> None:
    """The same id always says the same."""
    by_id: dict[str, Json] = {}
    for note in played.told.notifications:
        assert by_id.setdefault(note["id"], note) == note
    ended = next(note for note in by_id.values() if note["type"] == "run_ended")
    assert ended["status"] == "completed"
    assert ended["run_id"] == RUN


def test_the_history_is_a_table_for_people(played: Played) -> None:
    """`runfold events` has a line for each event, behind a head."""
    lines = played.table.splitlines()
    assert len(lines) == len(played.told.events) + 1
    assert "run-8c1:24" in played.table
    assert "reconciled" in played.table


def test_the_demo_says_what_it_does(played: Played) -> None:
    """A reader of its output sees the kill and who went on."""
    told = "\n".join(played.said)
    assert "SIGKILL" in told
    assert "reconciled" in told
    assert json.dumps(played.told.notification["arguments"]) in told
