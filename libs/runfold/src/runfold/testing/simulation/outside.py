"""Checkers of what came from the outside and of what it was told: ids, approvals, notifications, dead inputs, attempts.

They belong to ``checkers``, which names them all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from runfold.adapters.memory.broker import Stored
from runfold.core.events import (
    Cause,
    InputSettled,
    Interrupted,
    Recovery,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunEvent,
    RunFailed,
    Settlement,
    ToolCallRequested,
    WaitReason,
    Why,
)
from runfold.core.policy import MAX_LOST_ATTEMPTS
from runfold.core.state import Phase
from runfold.runtime.executor import ExecutorSettings
from runfold.testing.simulation.book import EFFECT
from runfold.testing.simulation.ending import Ending

MAX_STALE = ExecutorSettings(owner="", partitions=1).max_stale
"""How often one owner requests a step again for want of a fresh acknowledgement: the executors' default."""


def valid_events_are_legal(ending: Ending) -> Iterator[str]:
    """Whatever the rule of validity lets pass can be folded."""
    for history in ending.partitions:
        yield from history.illegal


def transactions_commit_at_most_once(ending: Ending) -> Iterator[str]:
    """A TRANSACTIONAL tool's writes are there once, whatever died when: the key is committed with them."""
    commits = Counter(act.key for act in ending.downstream.effects if act.recovery is Recovery.TRANSACTIONAL)
    commits.update(params[0] for query, params in ending.downstream.committed if query == EFFECT)
    for key, count in commits.items():
        if count > 1:
            yield f"the writes of {key} were committed {count} times"


def ids_have_one_effect(ending: Ending) -> Iterator[str]:
    """Of the inputs of a run that share an id, one causes an event."""
    effects: Counter[tuple[str, str]] = Counter()
    for event in _events(ending):
        if event.cause is not None and event.cause.id is not None:
            effects[event.run_id, event.cause.id] += 1
    for (run_id, input_id), count in effects.items():
        if count > 1:
            yield f"id {input_id!r} had {count} effects in {run_id}"


def approvals_are_of_what_was_shown(ending: Ending) -> Iterator[str]:
    """An approval that names arguments opens no gate that guards others."""
    shown = {event.wait_id: event.arguments_digest for event in _events(ending) if isinstance(event, Interrupted)}
    for event in _events(ending):
        if not isinstance(event, Resumed) or event.reason is not WaitReason.AWAITING_APPROVAL or event.cause is None:
            continue
        meant = json.loads(_input(ending, event.cause).value or b"{}").get("arguments_digest")
        if meant not in (None, shown[event.wait_id]):
            yield f"{event.wait_id} guards {shown[event.wait_id]}, and was opened by an approval of {meant}"


def no_input_is_unrecordable(ending: Ending) -> Iterator[str]:
    """The rulings about inputs draft only what can be folded: nothing is dead because its event was illegal."""
    for settled in _settled(ending):
        if settled.reason == "not_recordable":
            yield f"input {_place(settled.cause)} was judged, and could not be recorded: {settled.detail}"


def dead_copies_are_of_dead_inputs(ending: Ending) -> Iterator[str]:
    """``dead`` holds the inputs that a valid record calls dead, and no others."""
    expected = {_place(settled.cause) for settled in _settled(ending) if settled.outcome is Settlement.DEAD}
    copied = {_copied(record) for record in _records(ending, "dead")}
    for place in sorted(expected - copied):
        yield f"input {place} is dead, and was not copied"
    for place in sorted(copied - expected):
        yield f"input {place} was copied to dead, and the log does not call it so"


def notifications_are_of_valid_events(ending: Ending) -> Iterator[str]:
    """Every wait and every end is told of, and nothing else."""
    told = Interrupted | RunCompleted | RunFailed | RunCancelled
    expected = {f"{event.run_id}:{event.seq}" for event in _events(ending) if isinstance(event, told)}
    sent = {str(json.loads(record.value or b"{}").get("id")) for record in _records(ending, "notifications")}
    for missing in sorted(expected - sent):
        yield f"{missing} was not told of"
    for wrong in sorted(sent - expected):
        yield f"{wrong} was told of, and never happened"


def attempts_are_bounded(ending: Ending) -> Iterator[str]:
    """A step is not requested for ever: neither for want of freshness nor because its processes die in it."""
    stale: Counter[tuple[str, int, int]] = Counter()
    lost: Counter[tuple[str, int]] = Counter()
    for event in _events(ending):
        if isinstance(event, Resumed) and event.reason is WaitReason.ERROR:
            # Somebody looked at it: crashes are counted from here.
            lost = Counter({place: count for place, count in lost.items() if place[0] != event.run_id})
        if isinstance(event, ToolCallRequested):
            stale[event.run_id, event.step, event.epoch] += event.why is Why.STALE
            lost[event.run_id, event.step] += event.why is Why.TAKEOVER
            if lost[event.run_id, event.step] >= MAX_LOST_ATTEMPTS:
                yield f"{event.run_id}:{event.step} was executed again after {MAX_LOST_ATTEMPTS} lost attempts"
    for (run_id, step, epoch), count in stale.items():
        # One more at the beginning of an epoch: a request of an earlier one that was never performed.
        if count > MAX_STALE + 1:
            yield f"{run_id}:{step} was requested {count} times in epoch {epoch} for want of a fresh acknowledgement"


def doubts_are_about_calls_in_doubt(ending: Ending) -> Iterator[str]:
    """Nobody is asked about a call that has returned."""
    for run_id, state in ending.states():
        for wait in state.waits.values():
            call = state.call_at(wait.step)
            if wait.reason is WaitReason.INDETERMINATE and (call is None or call.phase is not Phase.IN_DOUBT):
                yield f"{wait.wait_id} of {run_id} waits for a person, and its call is not in doubt"


def _events(ending: Ending) -> Iterator[RunEvent]:
    return (body for history in ending.partitions for _, body in history.records if isinstance(body, RunEvent))


def _settled(ending: Ending) -> Iterator[InputSettled]:
    return (body for history in ending.partitions for _, body in history.records if isinstance(body, InputSettled))


def _records(ending: Ending, name: str) -> Iterator[Stored]:
    """The records of the topic whose name ends so."""
    partitions = next(found for topic, found in ending.topics.items() if topic.endswith(name))
    return (record for records in partitions for record in records)


def _input(ending: Ending, cause: Cause) -> Stored:
    return next(record for record in ending.topics[cause.topic][cause.partition] if record.offset == cause.offset)


def _place(cause: Cause) -> str:
    return f"{cause.topic}[{cause.partition}]@{cause.offset}"


def _copied(record: Stored) -> str:
    said = {name: value.decode() for name, value in record.headers}
    return f"{said['topic']}[{said['partition']}]@{said['offset']}"
