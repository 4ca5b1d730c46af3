"""Runs `runfold rebuild` on a simulated cluster."""

from __future__ import annotations

from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryStore
from runfold.core.events import WaitReason
from runfold.core.payload import Inline
from runfold.runtime.rebuild import damage, rebuilding
from runfold.testing.simulation.cluster import TOPICS, Cluster


def world_of(cluster: Cluster) -> damage.World:
    """What `runfold rebuild` works on."""
    return damage.World(
        log=MemoryLog(cluster.broker),
        inputs=MemoryInputs(cluster.broker),
        store=MemoryStore(cluster.database),
        topics=TOPICS,
        partitions=cluster.partitions,
        publisher=MemoryPublisher(cluster.broker),
        clock=LoopClock(),
        chance=SeededChance(1),
    )


async def rebuild(cluster: Cluster, *, accept_loss: bool = False) -> damage.Plan:
    """Run `runfold rebuild` on partition 0."""
    world = world_of(cluster)
    plan = await damage.examine(world, 0, accept_loss=accept_loss)
    await rebuilding.carry_out(world, plan)
    return plan


def what_holds(cluster: Cluster, run_id: str) -> tuple[WaitReason, str]:
    """Reason and detail of the one wait that stops a run."""
    state = cluster.state(run_id)
    assert state is not None
    (wait,) = state.waits.values()
    assert isinstance(wait.detail, Inline)
    return wait.reason, wait.detail.data.decode()
