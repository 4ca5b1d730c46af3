"""Throws away what Postgres holds of a partition, to be folded again; and mends a log that lost records.

A log that is whole says everything: nothing but Postgres is touched. A log that lost records does not say any more what
was done: what is therefore not known is written into it first, as records (``lost``), by a claim of this command. From
before that until the row is dropped, the row says that the partition is being rebuilt, and every service refuses it.
"""

from __future__ import annotations

from dataclasses import replace

from runfold.ports.store import PartitionRow
from runfold.runtime.identity import REBUILDING
from runfold.runtime.rebuild.lost import write_what_is_not_known
from runfold.runtime.rebuild.plan import Plan
from runfold.runtime.rebuild.refilling import refill
from runfold.runtime.rebuild.world import World


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
        for topic in plan.refill:
            settled, unhandled = plan.settled.of(topic), plan.unhandled[topic]
            await refill(world.inputs, world.publisher, plan.partition, topic, settled, unhandled_from=unhandled)
        if plan.log_damaged:
            await write_what_is_not_known(world, plan)
        begin = plan.bounds.begin
        fresh = replace(fresh, applied=begin, replay_from=begin)
    if row is None and fresh.applied == 0:
        return None
    return await world.store.drop(replace(fresh, version=0 if row is None else row.version))


def _marked(row: PartitionRow, plan: Plan) -> PartitionRow:
    """Have every service refuse the partition until the row is dropped, and remember where inputs begin to be new."""
    topic_id = REBUILDING if plan.log_damaged else row.topic_id
    return replace(row, topic_id=topic_id, input_ids={**row.input_ids, **plan.cut})
