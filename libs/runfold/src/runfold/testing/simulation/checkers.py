"""The invariants, one function each: they look at how it all ended, and say in words what should not be so.

A checker reads the log (judged apart from the system), the tables and what the world behind the tools remembers;
it knows nothing of faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from runfold.codec.snapshots import CorruptSnapshot, decode_snapshot, encode_state
from runfold.core.decisions import status
from runfold.core.events import (
    ModelCallRequested,
    ModelResponded,
    Outcome,
    Recovery,
    Source,
    ToolCallRequested,
    ToolReturned,
)
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.runtime.executor import ExecutorSettings
from runfold.testing.simulation.book import EFFECT, Question
from runfold.testing.simulation.ending import Checker, Ending, InputPlace
from runfold.testing.simulation.history import PartitionHistory, events_of
from runfold.testing.simulation.outside import (
    approvals_are_of_what_was_shown,
    attempts_are_bounded,
    dead_copies_are_of_dead_inputs,
    doubts_are_about_calls_in_doubt,
    ids_have_one_effect,
    no_input_is_unrecordable,
    notifications_are_of_valid_events,
    transactions_commit_at_most_once,
    valid_events_are_legal,
)

# --- safety: what the world saw ---------------------------------------------------------------------------------


def tools_act_only_after_their_valid_request(ending: Ending) -> Iterator[str]:
    """When a tool is called, and when it has its effect, the valid request of that very attempt is in the log."""
    for what, acts in (("called", ending.downstream.calls), ("performed", ending.downstream.effects)):
        for act in acts:
            requests = events_of(ending.history_of(act.run_id), act.run_id, ToolCallRequested, act.log_end)
            if not any((request.step, request.attempt) == (act.step, act.attempt) for request in requests):
                yield f"{act.key}, attempt {act.attempt}, was {what} without a valid request"


def manual_and_lookup_effects_happen_at_most_once(ending: Ending) -> Iterator[str]:
    """What must not be repeated blindly is not; no process is paused here longer than the documented bound."""
    once = (Recovery.MANUAL, Recovery.LOOKUP)
    acts = (act.key for act in ending.downstream.effects if act.recovery in once or act.only_once)
    for key, count in Counter(acts).items():
        if count > 1:
            yield f"the effect of {key} happened {count} times"


def known_keys_have_one_effect(ending: Ending) -> Iterator[str]:
    """A downstream system that knows a key does nothing new; it is never asked when it may have forgotten it."""
    for key, count in Counter(act.key for act in ending.downstream.effects if act.is_new).items():
        if count > 1:
            yield f"the world was changed {count} times for {key}"


def transactional_results_are_those_of_commits(ending: Ending) -> Iterator[str]:
    """A TRANSACTIONAL call that succeeded was committed, one that did not was not: the log and the world agree."""
    committed = {params[0] for query, params in ending.downstream.committed if query == EFFECT}
    for history in ending.partitions:
        asked = {
            f"{body.run_id}:{body.step}"
            for _, body in history.records
            if isinstance(body, ToolCallRequested) and body.recovery is Recovery.TRANSACTIONAL
        }
        for _, body in history.records:
            if isinstance(body, ToolReturned) and body.source in _BY_ITSELF and (key := _key(body)) in asked:
                is_committed = key in committed
                if (body.outcome is Outcome.SUCCESS) != is_committed:
                    yield f"{key} returned {body.outcome}, and was {'' if is_committed else 'not '}committed"


_BY_ITSELF = (Source.CALL, Source.RECONCILED, Source.EFFECTS_TABLE)


def _key(returned: ToolReturned) -> str:
    return f"{returned.run_id}:{returned.step}"


def models_are_asked_only_after_their_valid_request(ending: Ending) -> Iterator[str]:
    """When completion n is asked for, n + 1 steps of the run have a valid model request in the log."""
    for asked in ending.downstream.questions:
        requests = events_of(ending.history_of(asked.run_id), asked.run_id, ModelCallRequested, asked.log_end)
        if len({request.step for request in requests}) <= asked.position:
            yield f"{asked.run_id}: completion {asked.position} was asked for without a valid request"


def recorded_completions_are_never_asked_for_again(ending: Ending) -> Iterator[str]:
    """What was paid for is used, from the moment at which whoever asks can know: see ``_could_not_know``."""
    for asked in ending.downstream.questions:
        history = ending.history_of(asked.run_id)
        recorded = list(events_of(history, asked.run_id, ModelResponded, asked.log_end))
        if len(recorded) > asked.position and not _could_not_know(history, asked, recorded[asked.position]):
            yield f"{asked.run_id}: completion {asked.position} was asked for, and {len(recorded)} were recorded"


FRESHNESS_MS = int(ExecutorSettings(owner="", partitions=1).freshness_s * 1000) + 10
"""For how long an acknowledgement is taken as proof: the executors' default, and what clocks differ by in it."""


def _could_not_know(history: PartitionHistory, asked: Question, recorded: ModelResponded) -> bool:
    """Whether somebody else recorded it, and the asker's own request had landed, valid, within the freshness bound.

    A member that its group expels *earlier* than half a session after its last word (an administrator, a coordinator
    that has lost its state) acts on such an acknowledgement beside the next owner. Nothing in the log could tell it.
    What must not happen twice is kept from it by other means (time-out and grace); a model call is paid for twice.
    """
    if history.owners.get(recorded.epoch) == asked.by:
        return False
    requests = [
        (offset, body)
        for offset, body in history.records
        if offset < asked.log_end and isinstance(body, ModelCallRequested) and body.run_id == asked.run_id
    ]
    steps = sorted({body.step for _, body in requests})
    own = [
        offset
        for offset, body in requests
        if body.step == steps[asked.position] and history.owners.get(body.epoch) == asked.by
    ]
    return bool(own) and asked.at_ms - history.landed_ms.get(own[-1], 0) <= FRESHNESS_MS


# --- safety: log, tables and memory agree -----------------------------------------------------------------------


def every_input_leaves_one_record(ending: Ending) -> Iterator[str]:
    """Each input, a copy in ``control`` too, is settled by exactly one valid record."""
    causes: Counter[InputPlace] = Counter()
    for history in ending.partitions:
        for _, body in history.records:
            # Counted in the partition of the log that the record is in: it must be the input's own.
            if body.cause is not None:
                causes[body.cause.topic, history.partition, body.cause.offset] += 1
    for place in ending.inputs:
        if causes[place] != 1:
            yield "input {}[{}]@{} has {} valid records".format(*place, causes[place])


def tables_reach_the_end_of_the_log(ending: Ending) -> Iterator[str]:
    """Nothing of the log is left out of Postgres."""
    for partition, end in enumerate(ending.log_ends):
        row = ending.database.partitions.get(partition)
        if row is None or row.applied != end:
            yield f"partition {partition} is applied to {None if row is None else row.applied}, the log ends at {end}"


def stored_positions_are_those_of_the_log(ending: Ending) -> Iterator[str]:
    """The inputs that Postgres takes for settled are those that the log settles."""
    for history in ending.partitions:
        row = ending.database.partitions.get(history.partition)
        expected = _moved(history.fence.positions)
        stored = None if row is None else _moved(row.positions)
        if stored != expected:
            yield f"partition {history.partition}: positions {stored} are stored, the log says {expected}"


def _moved(positions: Positions) -> dict[str, Any]:
    """The positions that say anything: a topic that is not named begins at 0."""
    return {topic: said for topic, said in positions.to_json().items() if said != _BEGINNING}


_BEGINNING = {"next": 0, "above": []}


def rows_say_what_the_log_says(ending: Ending) -> Iterator[str]:
    """``runs`` has every run, as folded, and none is parked."""
    for run_id, state in ending.states():
        row = ending.database.runs.get(run_id)
        stored = None if row is None else (row.seq, row.status, row.step, row.usage, row.cost_nano_usd, row.parked)
        expected = (state.seq, status(state), state.last_step, state.usage, state.known_cost, None)
        if stored != expected:
            yield f"the row of {run_id} says {stored}, the log {expected}"


def snapshots_are_the_fold_of_the_log(ending: Ending) -> Iterator[str]:
    """A snapshot at a run's last event is the folded state, byte by byte; a run at rest has one."""
    for run_id, state in ending.states():
        stored = ending.stored.get(run_id)
        newest = stored.snapshots[0] if stored is not None and stored.snapshots else None
        if stored is None or newest is None or newest.seq != state.seq:
            if status(state) is not Status.RUNNING:
                yield f"{run_id} rests at seq {state.seq}, its newest snapshot is {newest and newest.seq}"
            continue
        try:
            decoded = decode_snapshot(newest, stored.chunks)
        except CorruptSnapshot as error:
            yield f"the snapshot of {run_id} is corrupt: {error}"
            continue
        if encode_state(decoded) != encode_state(state):
            yield f"the snapshot of {run_id} at seq {newest.seq} is not its state"


def waits_are_those_of_the_log(ending: Ending) -> Iterator[str]:
    """``waits`` has the open waits of every run, and no others."""
    expected = {wait_id for _, state in ending.states() for wait_id in state.waits}
    if (stored := set(ending.database.waits)) != expected:
        yield f"waits {sorted(stored)} are stored, the log has {sorted(expected)}"


def open_calls_are_those_of_the_log(ending: Ending) -> Iterator[str]:
    """``open_calls`` has the open attempts of every run, and no others."""
    expected = {(run_id, call.step, call.attempt) for run_id, state in ending.states() for call in state.open_calls()}
    stored = {(*key, opened.row.attempt) for key, opened in ending.database.open_calls.items()}
    if stored != expected:
        yield f"open calls {sorted(stored)} are stored, the log has {sorted(expected)}"


# --- progress: faults end, and everything goes on ---------------------------------------------------------------


def every_run_ends(ending: Ending) -> Iterator[str]:
    """Somebody answers whatever a run waits for: so every run that was started gets to its end."""
    for run_id in ending.started:
        state = ending.history_of(run_id).states.get(run_id)
        if state is None:
            yield f"{run_id} never began"
        elif state.ended is None:
            waits = [f"{wait.wait_id} {wait.reason}" for wait in state.waits.values()]
            calls = [f"{call.asked.tool} step {call.step} attempt {call.attempt} {call.phase}" for call in state.turn]
            yield f"{run_id} is stuck: {status(state)}, {state.model_call}, waits {waits}, calls {calls}"


def ended_runs_leave_memory(ending: Ending) -> Iterator[str]:
    """Executors hold only what is active."""
    for name, count in ending.in_memory.items():
        if count:
            yield f"{count} runs stay in the memory of {name}"


def stopped_executors_end(ending: Ending) -> Iterator[str]:
    """A hand-over comes to its end, whatever went on meanwhile."""
    for name in ending.unstopped:
        yield f"{name} was asked to stop and has not ended"


def no_error_is_dropped(ending: Ending) -> Iterator[str]:
    """Every error reaches somebody: none leaves an acknowledgement's callback, or a task that nobody awaits."""
    yield from ending.unhandled


CHECKERS: tuple[Checker, ...] = (
    tools_act_only_after_their_valid_request,
    manual_and_lookup_effects_happen_at_most_once,
    known_keys_have_one_effect,
    transactional_results_are_those_of_commits,
    models_are_asked_only_after_their_valid_request,
    recorded_completions_are_never_asked_for_again,
    every_input_leaves_one_record,
    tables_reach_the_end_of_the_log,
    stored_positions_are_those_of_the_log,
    rows_say_what_the_log_says,
    snapshots_are_the_fold_of_the_log,
    waits_are_those_of_the_log,
    open_calls_are_those_of_the_log,
    every_run_ends,
    ended_runs_leave_memory,
    stopped_executors_end,
    no_error_is_dropped,
    valid_events_are_legal,
    transactions_commit_at_most_once,
    ids_have_one_effect,
    approvals_are_of_what_was_shown,
    no_input_is_unrecordable,
    dead_copies_are_of_dead_inputs,
    notifications_are_of_valid_events,
    attempts_are_bounded,
    doubts_are_about_calls_in_doubt,
)


def check(ending: Ending) -> list[str]:
    """Run every checker; gives "name of the checker: what is wrong"."""
    return [f"{checker.__name__}: {problem}" for checker in CHECKERS for problem in checker(ending)]
