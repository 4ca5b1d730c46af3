"""Throws away what Postgres holds of a partition, to be folded again; and mends a log that lost records.

A log that is whole says everything: nothing but Postgres is touched. A log that lost records does not say any more what
was done, and no effect may be repeated by guessing. So what is not known is written into the log itself, by a claim of
this command, as valid records that every reader understands for ever:

* a run that may have gone on in what was lost is *held*: ``interrupted(error)``, until a person resumes or cancels it;
  what held it before (an error, a version) is closed, since it may have been lifted;
* a run of which only Postgres knows is recorded by ``run_started`` and its end, or a hold: its id stays used;
* an input of which nobody knows whether it had its effect gets its record: a start makes a run that is held, everything
  else is ``dead`` (``log_lost``), to be looked at and sent again.

Until all of it is durable, the partition's row says that it is being rebuilt, and every service refuses to use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

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
from runfold.core.fence import Fence
from runfold.core.partitioning import partition_of
from runfold.core.payload import Inline, Payload, inline_json
from runfold.core.positions import Positions
from runfold.core.state import State, Status
from runfold.core.transitions import fold
from runfold.ports.audit import AuditStore, Tables
from runfold.ports.clock import Chance, Clock
from runfold.ports.inputs import InputRecord, Inputs
from runfold.ports.log import Log, LogBounds, LogUnrecoverable
from runfold.ports.publisher import Publisher
from runfold.ports.store import PartitionRow, RunRow
from runfold.ports.topics import Topics
from runfold.runtime.identity import REBUILDING, check_inputs, has_other_tail, inspect, refilling, unhandled_from
from runfold.runtime.pen import Pen
from runfold.runtime.refilling import end_of, read, refill
from runfold.runtime.restore import Replay, nothing_stored

_BATCH = 500
_HELD = (
    "the log lost records, and with them what this run did last: look what became of its effects (their keys are "
    "RUN:STEP), then `runfold resume {run} --by NAME`, which may repeat what was lost, or `runfold cancel {run}`"
)
_BEGUN = (
    "the log lost this run's records: nobody knows whether it was begun, or what it did. `runfold resume {run} "
    "--by NAME` begins it again under the same keys; else `runfold cancel {run}` and start another run"
)


class Refused(Exception):
    """Nothing was changed; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class World:
    """What the command works on."""

    log: Log
    inputs: Inputs
    store: AuditStore
    topics: Topics
    partitions: int
    publisher: Publisher
    clock: Clock
    chance: Chance


@dataclass(slots=True)
class Plan:
    """What would be done with one partition.

    Attributes:
        row: As Postgres has it; None: it holds nothing.
        damage: What is wrong with log or inputs; None: the log is whole, and the compactor folds it again.
        is_another: It is not the log that Postgres is about.
        log_damaged: The log itself is not whole.
        tail_lost: Records at the log's end may be lost: what is not in it may have been done all the same.
        live: Runs in the log that would be held; ``stray``: those that only Postgres knows.
        unknown: How many inputs' fate is not known, by topic.
        unhandled: Input topics that were deleted and made again, or cut -> the offset from which on nothing that they
            hold was ever handled; ``cut``: the id under which those that were cut are known meanwhile.
        refill: Input topics in which settled offsets would be given to new inputs -> the offset to fill them up to.
    """

    partition: int
    row: PartitionRow | None
    bounds: LogBounds
    tables: Tables
    damage: str | None = None
    is_another: bool = False
    log_damaged: bool = False
    tail_lost: bool = False
    replay: Replay | None = None
    live: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    unhandled: dict[str, int] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)
    refill: dict[str, int] = field(default_factory=dict)


async def examine(world: World, partition: int, *, accept_loss: bool) -> Plan:
    """Look what is there, and what would have to be done; changes nothing.

    Raises:
        Refused: Records are lost and that was not accepted, or it cannot be mended without repeating effects.
    """
    tables = await world.store.tables(partition)
    plan = Plan(partition, tables.row, await world.log.bounds(partition), tables)
    await _find_damage(world, plan)
    if plan.damage is None:
        return plan
    if not accept_loss:
        raise Refused(f"{plan.damage} Nothing was changed.")
    plan.replay = Replay(partition, world.log, None, Fence(-1))
    await plan.replay.read(plan.bounds.begin, plan.bounds.end)
    _refuse_strangers(plan, set(plan.replay.runs))
    await _look_at_inputs(world, plan, plan.replay.fence.positions)
    if plan.tail_lost:
        _refuse_parked(plan, plan.replay)
        states = {run_id: loaded.state for run_id, loaded in plan.replay.runs.items()}
        # One that is held, too: it may have been let go, by a person or by code that fits it again.
        plan.live = sorted(run_id for run_id, state in states.items() if state is not None and state.ended is None)
    plan.stray = sorted(set(tables.runs) - set(plan.replay.runs))
    for topic in world.topics.inputs:
        plan.unknown[topic] = len(await _unknown_offsets(world, plan, topic))
    return plan


async def carry_out(world: World, plan: Plan) -> PartitionRow | None:
    """Do it. Gives the row from which the compactor goes on; None: it begins by itself.

    Raises:
        StaleCompactor: A compactor has committed meanwhile: run it again.
        OtherWriter: See there.
    """
    identity = await world.log.identity()
    row = plan.row
    fresh = PartitionRow.empty(plan.partition, identity.cluster_id, identity.topic_id)
    if plan.damage is not None:
        # Topics that were made again are refused by everybody until the row is dropped. A log marked without need would
        # be taken for a damaged one by the next run of the command, and every run of it be held.
        if plan.log_damaged or plan.cut:
            row = await world.store.set_row(_marked(row or fresh, plan))
        positions = Positions() if plan.replay is None else plan.replay.fence.positions
        for topic in plan.refill:
            settled, unhandled = positions.of(topic), plan.unhandled[topic]
            await refill(world.inputs, world.publisher, plan.partition, topic, settled, unhandled_from=unhandled)
        if plan.log_damaged:
            await _mend(world, plan)
        begin = plan.bounds.begin
        fresh = replace(fresh, applied=begin, replay_from=begin)
    if row is None and fresh.applied == 0:
        return None
    return await world.store.drop(replace(fresh, version=0 if row is None else row.version))


def _marked(row: PartitionRow, plan: Plan) -> PartitionRow:
    """Have every service refuse the partition until the row is dropped, and remember where inputs begin to be new."""
    topic_id = REBUILDING if plan.log_damaged else row.topic_id
    return replace(row, topic_id=topic_id, input_ids={**row.input_ids, **plan.cut})


async def _find_damage(world: World, plan: Plan) -> None:
    row = plan.row or await nothing_stored(plan.partition, world.log)
    try:
        await check_inputs(row, world.inputs)
    except LogUnrecoverable as error:
        plan.damage = str(error)
    try:
        await inspect(row, world.log, world.store)
    except LogUnrecoverable as error:
        plan.damage, plan.log_damaged = str(error), True
    identity = await world.log.identity()
    plan.is_another = (row.cluster_id, row.topic_id) not in (
        (identity.cluster_id, identity.topic_id),
        (identity.cluster_id, REBUILDING),
    )
    is_broken_off = row.topic_id == REBUILDING
    plan.tail_lost = (
        plan.is_another
        or is_broken_off
        or plan.bounds.end < row.applied
        or await has_other_tail(row, world.log, plan.bounds)
    )
    if plan.bounds.begin > 0:
        plan.log_damaged, plan.tail_lost = True, plan.tail_lost or plan.row is None
        plan.damage = plan.damage or (
            f"log partition {plan.partition} begins at {plan.bounds.begin}: what stood before cannot be folded again. "
            f"Restore the topic from a backup, or accept the loss: `runfold rebuild --partition {plan.partition} "
            "--accept-loss` (docs/disaster.md has the steps)."
        )


def _refuse_strangers(plan: Plan, found: set[str]) -> None:
    """A log of which Postgres knows next to nothing is no log that lost records: it is somebody else's."""
    unknown = found - set(plan.tables.runs)
    if plan.is_another and len(unknown) > len(found) / 2:
        raise Refused(
            f"log partition {plan.partition} holds {len(unknown)} runs that Postgres does not know, e.g. "
            f"{min(unknown)}: it belongs to another installation. Mend RUNFOLD_KAFKA_BOOTSTRAP, RUNFOLD_TOPIC_PREFIX "
            "or RUNFOLD_POSTGRES_SCHEMA. Nothing was changed."
        )


def _refuse_parked(plan: Plan, replay: Replay) -> None:
    """A run that cannot be folded cannot be held: code that can fold it would let it go on."""
    parked = sorted((run_id, loaded.parked) for run_id, loaded in replay.runs.items() if loaded.parked is not None)
    if parked:
        run_id, why = parked[0]
        others = f" (and {len(parked) - 1} more)" if len(parked) > 1 else ""
        raise Refused(
            f"log partition {plan.partition}: this release cannot read run {run_id}{others}: {why}. It may have gone "
            "on in what was lost, and cannot be held. Deploy the release that wrote it, or a later one, and run this "
            "again with that. Nothing was changed."
        )


# --- the input topics -------------------------------------------------------------------------------------------


async def _look_at_inputs(world: World, plan: Plan, settled: Positions) -> None:
    """Find the topics that are others now, and those in which settled offsets would be given to new inputs."""
    ids = await world.inputs.identities()
    known = {} if plan.row is None else plan.row.input_ids
    for topic in world.topics.inputs:
        topic_id, upto = ids[topic], end_of(settled.of(topic))
        end = (await world.inputs.bounds(topic, plan.partition)).end
        recorded = known.get(topic, topic_id)
        begun = unhandled_from(recorded, topic_id)
        if begun is None and recorded != topic_id:
            plan.unhandled[topic] = 0
        elif begun is not None or end < upto:
            # Broken off: its end says nothing any more, and what stands there may not have been copied.
            plan.unhandled[topic] = end if begun is None else min(begun, end)
            plan.cut[topic] = refilling(plan.unhandled[topic], topic_id)
        if upto and topic in plan.unhandled:
            plan.refill[topic] = upto


async def _unknown_offsets(world: World, plan: Plan, topic: str) -> list[int]:
    """Offsets without a record in the log that may have had their effect all the same."""
    bounds = await world.inputs.bounds(topic, plan.partition)
    settled = Positions() if plan.replay is None else plan.replay.fence.positions
    end = min(bounds.end, plan.unhandled.get(topic, bounds.end))
    offsets = [offset for offset in range(settled.of(topic).next, end) if not settled.is_settled(topic, offset)]
    if plan.tail_lost or plan.row is None:
        return offsets
    # The log's end is whole: what neither it nor Postgres has settled was never handled.
    return [offset for offset in offsets if plan.row.positions.is_settled(topic, offset)]


# --- into the log -----------------------------------------------------------------------------------------------


async def _mend(world: World, plan: Plan) -> None:
    """Write what is not known into the log."""
    pen = Pen(world.log, world.clock, world.chance, plan.partition)
    await pen.claim()
    known = {} if plan.replay is None else plan.replay.runs
    held: list[tuple[str | None, LogRecordBody]] = []
    for run_id in plan.live:
        state = known[run_id].state
        if state is not None:
            held.extend((run_id, event) for event in _hold_again(state, pen.stamp))
    await pen.write(held)
    made: set[str] = set(known)
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
    offsets = await _unknown_offsets(world, plan, topic)
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
