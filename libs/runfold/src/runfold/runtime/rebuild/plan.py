"""What is wrong with a partition's log and input topics, and what would have to be done: nothing is changed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runfold.core.fence import Fence
from runfold.core.positions import Positions
from runfold.ports.audit import Tables
from runfold.ports.log import LogBounds, LogUnrecoverable
from runfold.ports.store import PartitionRow
from runfold.runtime.identity import REBUILDING, check_inputs, has_other_tail, inspect, refilling, unhandled_from
from runfold.runtime.rebuild.world import World
from runfold.runtime.restore import Loaded, Replay, nothing_stored


class Refused(Exception):
    """Nothing was changed; the message says why, and what to do."""


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

    @property
    def runs(self) -> Mapping[str, Loaded]:
        """The runs in a damaged log."""
        return {} if self.replay is None else self.replay.runs

    @property
    def settled(self) -> Positions:
        """The inputs that a damaged log settles."""
        return Positions() if self.replay is None else self.replay.fence.positions


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
    _refuse_strangers(plan)
    await _look_at_inputs(world, plan)
    if plan.tail_lost:
        _refuse_parked(plan)
        states = {run_id: loaded.state for run_id, loaded in plan.runs.items()}
        # One that is held, too: it may have been let go, by a person or by code that fits it again.
        plan.live = sorted(run_id for run_id, state in states.items() if state is not None and state.ended is None)
    plan.stray = sorted(tables.runs.keys() - plan.runs.keys())
    for topic in world.topics.inputs:
        plan.unknown[topic] = len(await unknown_offsets(world, plan, topic))
    return plan


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


def _refuse_strangers(plan: Plan) -> None:
    """A log of which Postgres knows next to nothing is no log that lost records: it is somebody else's."""
    unknown = plan.runs.keys() - plan.tables.runs.keys()
    if plan.is_another and len(unknown) > len(plan.runs) / 2:
        raise Refused(
            f"log partition {plan.partition} holds {len(unknown)} runs that Postgres does not know, e.g. "
            f"{min(unknown)}: it belongs to another installation. Mend RUNFOLD_KAFKA_BOOTSTRAP, RUNFOLD_TOPIC_PREFIX "
            "or RUNFOLD_POSTGRES_SCHEMA. Nothing was changed."
        )


def _refuse_parked(plan: Plan) -> None:
    """A run that cannot be folded cannot be held: code that can fold it would let it go on."""
    parked = sorted((run_id, loaded.parked) for run_id, loaded in plan.runs.items() if loaded.parked is not None)
    if parked:
        run_id, why = parked[0]
        others = f" (and {len(parked) - 1} more)" if len(parked) > 1 else ""
        raise Refused(
            f"log partition {plan.partition}: this release cannot read run {run_id}{others}: {why}. It may have gone "
            "on in what was lost, and cannot be held. Deploy the release that wrote it, or a later one, and run this "
            "again with that. Nothing was changed."
        )


# --- the input topics -------------------------------------------------------------------------------------------


async def _look_at_inputs(world: World, plan: Plan) -> None:
    """Find the topics that are others now, and those in which settled offsets would be given to new inputs."""
    ids = await world.inputs.identities()
    known = {} if plan.row is None else plan.row.input_ids
    for topic in world.topics.inputs:
        topic_id, upto = ids[topic], plan.settled.of(topic).end
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


async def unknown_offsets(world: World, plan: Plan, topic: str) -> list[int]:
    """Offsets without a record in the log that may have had their effect all the same."""
    bounds = await world.inputs.bounds(topic, plan.partition)
    settled = plan.settled
    end = min(bounds.end, plan.unhandled.get(topic, bounds.end))
    offsets = [offset for offset in range(settled.of(topic).next, end) if not settled.is_settled(topic, offset)]
    if plan.tail_lost or plan.row is None:
        return offsets
    # The log's end is whole: what neither it nor Postgres has settled was never handled.
    return [offset for offset in offsets if plan.row.positions.is_settled(topic, offset)]
