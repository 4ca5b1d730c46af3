"""Runs `runfold rebuild` on a simulated cluster, and breaks it off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryStore
from runfold.core.events import WaitReason
from runfold.core.payload import Inline
from runfold.ports.log import AppendFailed, OnAck
from runfold.ports.publisher import Published
from runfold.runtime.rebuild import mending
from runfold.runtime.rebuild.plan import Plan, examine
from runfold.runtime.rebuild.world import World
from runfold.testing.simulation.cluster import TOPICS, Cluster


def world_of(cluster: Cluster) -> World:
    """What `runfold rebuild` works on."""
    return World(
        log=MemoryLog(cluster.broker),
        inputs=MemoryInputs(cluster.broker),
        store=MemoryStore(cluster.database),
        topics=TOPICS,
        partitions=cluster.partitions,
        publisher=MemoryPublisher(cluster.broker),
        clock=LoopClock(),
        chance=SeededChance(1),
    )


async def rebuild(cluster: Cluster, *, accept_loss: bool = False) -> Plan:
    """Run `runfold rebuild` on partition 0."""
    world = world_of(cluster)
    plan = await examine(world, 0, accept_loss=accept_loss)
    await mending.carry_out(world, plan)
    return plan


def what_holds(cluster: Cluster, run_id: str) -> tuple[WaitReason, str]:
    """Reason and detail of the one wait that stops a run."""
    state = cluster.state(run_id)
    assert state is not None
    (wait,) = state.waits.values()
    assert isinstance(wait.detail, Inline)
    return wait.reason, wait.detail.data.decode()


class DyingLog(MemoryLog):
    """A log in which the first ``left`` records land, and nothing after them."""

    def __init__(self, broker: MemoryBroker, *, left: int) -> None:
        super().__init__(broker)
        self.left = left

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        self.left -= 1
        if self.left >= 0:
            super()._land(partition, record, on_ack)
        else:
            self._acknowledge(partition, on_ack, AppendFailed("broken off"))


class DyingPublisher(MemoryPublisher):
    """A publisher whose process dies behind ``left`` records; a sender writes once, behind the first of them."""

    def __init__(self, broker: MemoryBroker, *, left: int, sender: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(broker)
        self.left = left
        self.sender = sender

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Append one record."""
        if self.left == 0:
            raise RuntimeError("broken off")
        self.left -= 1
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if self.sender is not None:
            await self.sender()
            self.sender = None
        return published
