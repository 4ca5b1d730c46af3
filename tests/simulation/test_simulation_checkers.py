"""Each checker is quiet about a good ending, and speaks when the one thing that it looks for is spoilt."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import TypeVar

import pytest

from runfold.adapters.memory.broker import Stored
from runfold.core.events import (
    AskedCall,
    Cause,
    InputSettled,
    Interrupted,
    Recovery,
    Resumed,
    RunEvent,
    RunStarted,
    Settlement,
    ToolCallRequested,
    WaitReason,
    Why,
)
from runfold.core.payload import Inline
from runfold.core.state import Call, Phase, State, Wait
from runfold.testing.simulation import checkers, outside
from runfold.testing.simulation.ending import Checker, Ending
from runfold.testing.simulation.history import PartitionHistory
from tests.simulation.scenario import run_seed

EventT = TypeVar("EventT", bound=RunEvent)
GOOD = 10
"""A seed that uses tools of every class."""

Spoil = Callable[[Ending], None]


@cache
def _good() -> Ending:
    """An ending of a run without faults."""
    return run_seed(GOOD, faults=()).ending


@pytest.fixture
def ending() -> Ending:
    """A good ending, to be spoilt."""
    return deepcopy(_good())


def _a_state(ending: Ending) -> State:
    return next(state for _, state in ending.states())


def _call_before_its_request(ending: Ending) -> None:
    ending.downstream.calls[0] = replace(ending.downstream.calls[0], log_end=0)


def _effect_of_another_attempt(ending: Ending) -> None:
    ending.downstream.effects[0] = replace(ending.downstream.effects[0], attempt=9)


def _second_effect(ending: Ending) -> None:
    manual = (act for act in ending.downstream.effects if act.recovery is Recovery.MANUAL)
    ending.downstream.effects.append(next(manual))


def _known_key_done_again(ending: Ending) -> None:
    keyed = next(act for act in ending.downstream.effects if act.recovery is Recovery.KEYED)
    ending.downstream.effects.append(replace(keyed, is_new=True))


def _committed_and_not_returned(ending: Ending) -> None:
    ending.downstream.committed.clear()


def _question_before_its_request(ending: Ending) -> None:
    ending.downstream.questions[-1] = replace(ending.downstream.questions[-1], log_end=0)


def _question_behind_its_answer(ending: Ending) -> None:
    asked = ending.downstream.questions[0]
    log_end = ending.log_ends[ending.home[asked.run_id]]
    ending.downstream.questions[0] = replace(asked, log_end=log_end, at_ms=asked.at_ms + 10_000)


def _question_of_somebody_else(ending: Ending) -> None:
    asked = ending.downstream.questions[0]
    log_end = ending.log_ends[ending.home[asked.run_id]]
    ending.downstream.questions[0] = replace(asked, log_end=log_end, by="who never requested it")


def _cause_lost(ending: Ending) -> None:
    for history in ending.partitions:
        history.records = [(offset, body) for offset, body in history.records if body.cause is None]


def _cause_twice(ending: Ending) -> None:
    records = next(history.records for history in ending.partitions if history.records)
    records.append(next(record for record in records if record[1].cause is not None))


def _tables_behind(ending: Ending) -> None:
    row = ending.database.partitions[0]
    ending.database.partitions[0] = replace(row, applied=row.applied - 1)


def _no_partition_row(ending: Ending) -> None:
    del ending.database.partitions[0]


def _position_ahead(ending: Ending) -> None:
    ending.database.partitions[0].positions.settle("runfold.requests", 1_000_000)


def _row_behind(ending: Ending) -> None:
    state = _a_state(ending)
    ending.database.runs[state.run_id] = replace(ending.database.runs[state.run_id], seq=state.seq - 1)


def _row_parked(ending: Ending) -> None:
    run_id = _a_state(ending).run_id
    ending.database.runs[run_id] = replace(ending.database.runs[run_id], parked="poison")


def _no_snapshot(ending: Ending) -> None:
    run_id = _a_state(ending).run_id
    ending.stored[run_id] = replace(ending.stored[run_id], snapshots=())


def _other_snapshot(ending: Ending) -> None:
    _a_state(ending).values["k"] = Inline(b"1")


def _corrupt_snapshot(ending: Ending) -> None:
    run_id = _a_state(ending).run_id
    newest, *others = ending.stored[run_id].snapshots
    spoilt = replace(newest, state=newest.state[:-1])
    ending.stored[run_id] = replace(ending.stored[run_id], snapshots=(spoilt, *others))


def _wait_not_stored(ending: Ending) -> None:
    state = _a_state(ending)
    state.waits["r:1"] = Wait("r:1", 1, 1, WaitReason.ERROR, Inline(b"{}"))


def _open_call_not_stored(ending: Ending) -> None:
    asked = AskedCall("call-0-0", "manual", Inline(b"{}"))
    _a_state(ending).turn.append(Call(asked, Phase.REQUESTED, step=2, attempt=1))


def _run_not_ended(ending: Ending) -> None:
    _a_state(ending).ended = None


def _run_not_begun(ending: Ending) -> None:
    for history in ending.partitions:
        history.states.clear()


def _run_in_memory(ending: Ending) -> None:
    ending.in_memory["p1"] = 1


def _executor_not_stopped(ending: Ending) -> None:
    ending.unstopped.append("p1")


def _error_dropped(ending: Ending) -> None:
    ending.unhandled.append("Exception in callback: RuntimeError()")


def _illegal_event(ending: Ending) -> None:
    ending.partitions[0].illegal.append("log[0]@7: it does not follow")


def _record(ending: Ending, kind: type[EventT]) -> tuple[PartitionHistory, EventT]:
    """Some valid event, and its partition."""
    return next(
        (history, body) for history in ending.partitions for _, body in history.records if isinstance(body, kind)
    )


def _committed_twice(ending: Ending) -> None:
    once = replace(ending.downstream.effects[0], recovery=Recovery.TRANSACTIONAL)
    ending.downstream.effects.extend([once, once])


def _written_twice(ending: Ending) -> None:
    ending.downstream.committed.append(ending.downstream.committed[0])


def _id_twice(ending: Ending) -> None:
    history, event = _record(ending, RunStarted)
    again = replace(event, cause=Cause("runfold.requests", 0, 0, "x"))
    history.records += [(10_000, again), (10_001, again)]


def _approval_of_something_else(ending: Ending) -> None:
    history, gate = _record(ending, Interrupted)
    assert gate.reason is WaitReason.AWAITING_APPROVAL
    cause = next(b.cause for _, b in history.records if isinstance(b, Resumed) and b.wait_id == gate.wait_id)
    assert cause is not None
    records = ending.topics[cause.topic][cause.partition]
    index = next(index for index, record in enumerate(records) if record.offset == cause.offset)
    records[index] = replace(records[index], value=b'{"arguments_digest": "another"}')


def _dead(ending: Ending, reason: str) -> None:
    cause = Cause("runfold.requests", 0, 0)
    settled = InputSettled(
        epoch=0, at=0, cause=cause, outcome=Settlement.DEAD, run_id="r", reason=reason, detail="it is illegal"
    )
    ending.partitions[0].records.append((10_000, settled))


def _unrecordable_input(ending: Ending) -> None:
    _dead(ending, "not_recordable")


def _dead_input_not_copied(ending: Ending) -> None:
    _dead(ending, "not_open")


def _living_input_copied(ending: Ending) -> None:
    headers = (("topic", b"runfold.requests"), ("partition", b"0"), ("offset", b"0"))
    ending.topics["runfold.dead"][0].append(Stored(0, b"r", b"{}", headers, 0))


def _not_told(ending: Ending) -> None:
    next(records for records in ending.topics["runfold.notifications"] if records).clear()


def _told_of_nothing(ending: Ending) -> None:
    ending.topics["runfold.notifications"][0].append(Stored(0, b"r", b'{"id": "r:1"}', (), 0))


def _requested_again(ending: Ending, why: Why, times: int) -> None:
    history, request = _record(ending, ToolCallRequested)
    history.records += [(10_000, replace(request, why=why))] * times


def _lost_without_end(ending: Ending) -> None:
    _requested_again(ending, Why.TAKEOVER, 3)


def _stale_without_end(ending: Ending) -> None:
    _requested_again(ending, Why.STALE, 7)


def _doubt_about_nothing(ending: Ending) -> None:
    _a_state(ending).waits["r:99"] = Wait("r:99", 99, 1, WaitReason.INDETERMINATE, Inline(b"{}"))


SPOILS: list[tuple[Checker, Spoil]] = [
    (checkers.tools_act_only_after_their_valid_request, _call_before_its_request),
    (checkers.tools_act_only_after_their_valid_request, _effect_of_another_attempt),
    (checkers.manual_and_lookup_effects_happen_at_most_once, _second_effect),
    (checkers.known_keys_have_one_effect, _known_key_done_again),
    (checkers.transactional_results_are_those_of_commits, _committed_and_not_returned),
    (checkers.models_are_asked_only_after_their_valid_request, _question_before_its_request),
    (checkers.recorded_completions_are_never_asked_for_again, _question_behind_its_answer),
    (checkers.recorded_completions_are_never_asked_for_again, _question_of_somebody_else),
    (checkers.every_input_leaves_one_record, _cause_lost),
    (checkers.every_input_leaves_one_record, _cause_twice),
    (checkers.tables_reach_the_end_of_the_log, _tables_behind),
    (checkers.tables_reach_the_end_of_the_log, _no_partition_row),
    (checkers.stored_positions_are_those_of_the_log, _position_ahead),
    (checkers.rows_say_what_the_log_says, _row_behind),
    (checkers.rows_say_what_the_log_says, _row_parked),
    (checkers.snapshots_are_the_fold_of_the_log, _no_snapshot),
    (checkers.snapshots_are_the_fold_of_the_log, _other_snapshot),
    (checkers.snapshots_are_the_fold_of_the_log, _corrupt_snapshot),
    (checkers.waits_are_those_of_the_log, _wait_not_stored),
    (checkers.open_calls_are_those_of_the_log, _open_call_not_stored),
    (checkers.every_run_ends, _run_not_ended),
    (checkers.every_run_ends, _run_not_begun),
    (checkers.ended_runs_leave_memory, _run_in_memory),
    (checkers.stopped_executors_end, _executor_not_stopped),
    (checkers.no_error_is_dropped, _error_dropped),
    (outside.valid_events_are_legal, _illegal_event),
    (outside.transactions_commit_at_most_once, _committed_twice),
    (outside.transactions_commit_at_most_once, _written_twice),
    (outside.ids_have_one_effect, _id_twice),
    (outside.approvals_are_of_what_was_shown, _approval_of_something_else),
    (outside.no_input_is_unrecordable, _unrecordable_input),
    (outside.dead_copies_are_of_dead_inputs, _dead_input_not_copied),
    (outside.dead_copies_are_of_dead_inputs, _living_input_copied),
    (outside.notifications_are_of_valid_events, _not_told),
    (outside.notifications_are_of_valid_events, _told_of_nothing),
    (outside.attempts_are_bounded, _lost_without_end),
    (outside.attempts_are_bounded, _stale_without_end),
    (outside.doubts_are_about_calls_in_doubt, _doubt_about_nothing),
]


@pytest.mark.parametrize(("checker", "spoil"), SPOILS, ids=[spoil.__name__.strip("_") for _, spoil in SPOILS])
def test_a_checker_speaks_of_what_is_spoilt(ending: Ending, checker: Checker, spoil: Spoil) -> None:
    """Quiet before, and not behind: so a green run says something."""
    assert list(checker(ending)) == []
    spoil(ending)
    assert list(checker(ending)) != []


def test_every_checker_is_seen_to_fail() -> None:
    assert {checker for checker, _ in SPOILS} == set(checkers.CHECKERS)
