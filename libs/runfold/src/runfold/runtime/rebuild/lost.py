"""What stands in a log for what it lost: records that every reader understands for ever.

No effect may be repeated by guessing. So what is not known is written into the log itself, as valid records:

* a run that may have gone on in what was lost is *held*: ``interrupted(error)``, until a person resumes or cancels it;
  what held it before (an error, a version) is closed, since it may have been lifted;
* a run of which only Postgres knows is recorded by ``run_started`` and its end, or a hold: its id stays used;
* an input of which nobody knows whether it had its effect gets its record: a start makes a run that is held, everything
  else is ``dead`` (``log_lost``), to be looked at and sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from runfold.codec.input_types import BadInput, StartInput
from runfold.codec.inputs import kind_of, parse_input
from runfold.codec.snapshots import CorruptSnapshot, decode_snapshot
from runfold.core import drafts
from runfold.core.errors import UnknownRecord
from runfold.core.events import (
    UNKNOWN_VERSION,
    Cause,
    InputSettled,
    Interrupted,
    LogRecordBody,
    Resumed,
    RunCompleted,
    RunFailed,
    RunStarted,
    Settlement,
    Version,
    WaitReason,
)
from runfold.core.partitioning import partition_of
from runfold.core.payload import Inline, Payload, inline_json
from runfold.core.state import State, Status
from runfold.core.transitions import fold
from runfold.ports.inputs import InputRecord
from runfold.ports.store import RunRow
from runfold.runtime.rebuild.pen import Pen
from runfold.runtime.rebuild.plan import Plan, unknown_offsets
from runfold.runtime.rebuild.refilling import read
from runfold.runtime.rebuild.world import World

_BATCH = 500
_HELD = (
    "the log lost records, and with them what this run did last: look what became of its effects (their keys are "
    "RUN:STEP), then `runfold resume {run} --by NAME`, which may repeat what was lost, or `runfold cancel {run}`"
)
_BEGUN = (
    "the log lost this run's records: nobody knows whether it was begun, or what it did. `runfold resume {run} "
    "--by NAME` begins it again under the same keys; else `runfold cancel {run}` and start another run"
)


async def write_what_is_not_known(world: World, plan: Plan) -> None:
    """Write what is not known into the log."""
    pen = Pen(world.log, world.clock, world.chance, plan.partition)
    await pen.claim()
    held: list[tuple[str | None, LogRecordBody]] = []
    for run_id in plan.live:
        state = plan.runs[run_id].state
        if state is not None:
            held.extend((run_id, event) for event in _hold_again(state, pen.stamp))
    await pen.write(held)
    made: set[str] = set(plan.runs)
    for topic in sorted(world.topics.inputs):
        async for records in _input_records(world, plan, topic, pen, made):
            await pen.write(records)
    for run_id in plan.stray:
        if run_id not in made:
            await pen.write(await _stray(world, plan.tables.runs[run_id], pen.stamp))


async def _input_records(
    world: World, plan: Plan, topic: str, pen: Pen, made: set[str]
) -> AsyncIterator[list[tuple[str | None, LogRecordBody]]]:
    """Give the records of inputs whose fate is not known, a batch at a time."""
    offsets = await unknown_offsets(world, plan, topic)
    unknown, bounds = set(offsets), await world.inputs.bounds(topic, plan.partition)
    batch: list[tuple[str | None, LogRecordBody]] = []
    for offset in offsets:
        if offset < bounds.begin:
            cause = Cause(topic, plan.partition, offset)
            batch.append((None, _settled(cause, pen.stamp, Settlement.DUPLICATE, None)))
    there = range(max(bounds.begin, min(unknown, default=0)), max(unknown, default=-1) + 1)
    async for record in read(world.inputs, world.publisher, world.topics.inputs, plan.partition, topic, there):
        if record.offset in unknown:
            batch.extend(await _records_of(world, plan, record, pen.stamp, made))
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def _records_of(
    world: World, plan: Plan, record: InputRecord, stamp: drafts.Stamp, made: set[str]
) -> list[tuple[str | None, LogRecordBody]]:
    """Settle one input of which nobody knows whether it had its effect."""
    cause = Cause(record.topic, record.partition, record.offset)
    was_settled = plan.row is not None and plan.row.positions.is_settled(cause.topic, cause.offset)
    try:
        given = parse_input(kind_of(record.topic), record.key, record.value)
    except BadInput:
        given = None
    if isinstance(given, StartInput) and partition_of(given.run_id, world.partitions) == plan.partition:
        if given.run_id not in made:
            made.add(given.run_id)
            cause = replace(cause, id=given.id)
            known = plan.tables.runs.get(given.run_id)
            if known is not None:
                return await _stray(world, known, stamp, cause)
            started = _started(
                given.run_id, given.agent, Inline(given.input), UNKNOWN_VERSION, replace(stamp, cause=cause)
            )
            return [(given.run_id, started), (given.run_id, _hold(fold(None, started), stamp, _BEGUN))]
        return [(None, _settled(cause, stamp, Settlement.DUPLICATE, given.run_id))]
    if was_settled:
        return [(None, _settled(cause, stamp, Settlement.DUPLICATE, None if given is None else given.run_id))]
    why = ("log_lost", "the log lost records: nobody knows whether it had its effect; look, and send it again if not")
    return [(None, _settled(cause, stamp, Settlement.DEAD, None if given is None else given.run_id, why))]


async def _stray(
    world: World, run: RunRow, stamp: drafts.Stamp, cause: Cause | None = None
) -> list[tuple[str | None, LogRecordBody]]:
    """Record a run of which only Postgres knows, with its end as far as that is known."""
    first = replace(stamp, cause=cause)
    started = _started(run.run_id, run.agent, await _input_of(world, run.run_id), run.version, first)
    state = fold(None, started)
    fields = drafts.envelope(state, stamp)
    end: RunCompleted | RunFailed | Interrupted
    match run.status:
        case Status.COMPLETED:
            end = RunCompleted(**fields, output=run.output or Inline(b"null"))
        case Status.FAILED | Status.CANCELLED:
            end = RunFailed(**fields, error=run.error or str(run.status))
        case _:
            end = _hold(state, stamp, _BEGUN)
    return [(run.run_id, started), (run.run_id, end)]


async def _input_of(world: World, run_id: str) -> Payload:
    """Read a run's input out of a snapshot; null where none can be read."""
    stored = (await world.store.load_runs([run_id])).get(run_id)
    for snapshot in () if stored is None else stored.snapshots:
        try:
            return decode_snapshot(snapshot, stored.chunks if stored is not None else ()).input
        except (CorruptSnapshot, UnknownRecord):
            continue
    return Inline(b"null")


def _started(run_id: str, agent: str, given: Payload, version: Version, stamp: drafts.Stamp) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        seq=0,
        epoch=stamp.epoch,
        at=stamp.at,
        cause=stamp.cause,
        agent=agent,
        input=given,
        version=version,
        first_message=None,
    )


def _hold_again(state: State, stamp: drafts.Stamp) -> list[Resumed | Interrupted]:
    """Hold a run, whatever it was held by; folds the events: an illegal one raises before anything is written.

    What it was held by is closed first. A version that fits again is let go by the next owner, which would then drive a
    run that another wait stops; and of an error that somebody has looked at before, he must be told anew.
    """
    events: list[Resumed | Interrupted] = []
    while (wait := state.operational_wait()) is not None:
        if wait.detail == inline_json(_detail(state, _HELD)):
            return events  # by a command that was broken off
        events.append(drafts.resumed(state, stamp, wait))
        fold(state, events[-1])
    events.append(_hold(state, stamp, _HELD))
    fold(state, events[-1])
    return events


def _detail(state: State, text: str) -> dict[str, object]:
    return {"error": text.format(run=state.run_id)}


def _hold(state: State, stamp: drafts.Stamp, text: str) -> Interrupted:
    return drafts.interruption(state, stamp, WaitReason.ERROR, _detail(state, text))


def _settled(
    cause: Cause, stamp: drafts.Stamp, outcome: Settlement, run_id: str | None, why: tuple[str, str] | None = None
) -> InputSettled:
    reason, detail = why or (None, None)
    return InputSettled(
        epoch=stamp.epoch, at=stamp.at, cause=cause, outcome=outcome, run_id=run_id, reason=reason, detail=detail
    )
