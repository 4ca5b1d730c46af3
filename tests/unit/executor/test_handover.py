"""Partitions that are slow to drain: let go at once, and owned by the next one when they are drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from runfold.adapters.memory.clock import LoopClock
from runfold.adapters.memory.drains import MemoryDrains
from runfold.ports.drains import Drains, DrainsUnavailable
from runfold.runtime.executor.handover import HandOver
from runfold.runtime.executor.settings import ExecutorSettings
from runfold.testing.simulation.loop import run_virtual


class Owner:
    """Is drained so many seconds after it was told."""

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s
        self._told = asyncio.Event()

    def hand_over(self) -> None:
        """Tell it."""
        self._told.set()

    async def run(self) -> None:
        """Own until then."""
        await self._told.wait()
        await asyncio.sleep(self._drain_s)


class NoDrains(MemoryDrains):
    """Kafka does not answer."""

    async def mark(self, partitions: Sequence[int]) -> None:
        """Refuse."""
        raise DrainsUnavailable(str(partitions))

    async def marks(self, partitions: Sequence[int]) -> dict[int, str]:
        """Refuse."""
        raise DrainsUnavailable(str(partitions))


@asynccontextmanager
async def process(drains: Drains | None) -> AsyncIterator[tuple[HandOver, asyncio.TaskGroup]]:
    """One process's hand-overs."""
    async with asyncio.TaskGroup() as group:
        yield HandOver(drains, LoopClock(), ExecutorSettings("me", 4, drain_s=20.0), group), group


def leaving(group: asyncio.TaskGroup, drains_s: dict[int, float]) -> dict[int, tuple[Owner, asyncio.Task[None]]]:
    """Owners of some partitions, by the time that they take."""
    owners = {partition: Owner(drain_s) for partition, drain_s in drains_s.items()}
    return {partition: (owner, group.create_task(owner.run())) for partition, owner in owners.items()}


def test_what_is_slow_to_drain_is_let_go_with_a_mark() -> None:
    """Neither the quick partition nor the group waits for the slow one; its mark goes when it is drained."""

    async def main() -> None:
        drains, clock = MemoryDrains(), LoopClock()
        async with process(drains) as (hand_over, group):
            began = clock.elapsed()
            owned = leaving(group, {0: 0.01, 1: 7.0})
            await hand_over.let_go(owned)
            assert clock.elapsed() - began < 0.2
            assert owned[0][1].done()
            assert set(await drains.marks([0, 1])) == {1}
            await hand_over.finish()
            assert 7.0 <= clock.elapsed() - began < 7.1
            assert await drains.marks([0, 1]) == {}

    run_virtual(main())


def test_the_next_owner_waits_until_the_old_one_has_drained() -> None:
    """And no longer."""

    async def main() -> None:
        drains, clock = MemoryDrains(), LoopClock()
        async with process(drains) as (old, old_group), process(drains) as (new, _):
            began = clock.elapsed()
            await old.let_go(leaving(old_group, {2: 7.0}))
            await new.await_drained(2, new.look([2, 3]))
            assert 7.0 <= clock.elapsed() - began < 7.2
            await new.await_drained(3, new.look([2, 3]))
            assert clock.elapsed() - began < 7.2

    run_virtual(main())


def test_a_process_that_dies_while_it_drains_is_not_waited_for() -> None:
    """Its mark is not renewed any more; who takes over clears it, so that nobody else waits again."""

    async def main() -> None:
        drains, clock = MemoryDrains(), LoopClock()
        await drains.mark([1])
        async with process(drains) as (new, _):
            began = clock.elapsed()
            await new.await_drained(1, new.look([1]))
            assert 5.0 <= clock.elapsed() - began < 5.5
            assert await drains.marks([1]) == {}

    run_virtual(main())


def test_without_marks_everything_is_drained_before_it_is_let_go() -> None:
    """Kafka does not take the marks, or there are none: as before, bounded by the time for draining."""

    async def main() -> None:
        for drains in (NoDrains(), None):
            clock = LoopClock()
            async with process(drains) as (hand_over, group):
                began = clock.elapsed()
                owned = leaving(group, {0: 7.0, 1: 1000.0})
                await hand_over.let_go(owned)
                assert 25.0 <= clock.elapsed() - began < 25.5
                assert owned[0][1].done()
                assert not owned[0][1].cancelled()
                # Nobody knows whether somebody drains: the partition is not left to nobody.
                await hand_over.await_drained(2, hand_over.look([2]))
                assert clock.elapsed() - began < 26.0

    run_virtual(main())


def test_what_is_let_go_before_it_was_owned_is_not_marked() -> None:
    """The one who waits is not the one who drains: it stops waiting, and leaves the mark to its owner."""

    async def main() -> None:
        drains, clock = MemoryDrains(), LoopClock()
        async with process(drains) as (old, old_group), process(drains) as (new, group):
            await old.let_go(leaving(old_group, {2: 3.0}))
            owner = Owner(0.0)
            waiting = group.create_task(new.await_drained(2, new.look([2])))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            began = clock.elapsed()
            await new.let_go({2: (owner, waiting)})
            assert clock.elapsed() - began < 0.05
            assert waiting.cancelled()
            await old.finish()
            assert await drains.marks([2]) == {}

    run_virtual(main())


def test_a_partition_that_comes_back_while_it_is_drained_is_owned_afterwards() -> None:
    """In the same process: two owners of one partition would end each other's epochs."""

    async def main() -> None:
        drains, clock = MemoryDrains(), LoopClock()
        async with process(drains) as (hand_over, group):
            began = clock.elapsed()
            await hand_over.let_go(leaving(group, {0: 4.0}))
            await hand_over.await_drained(0, hand_over.look([0]))
            assert 4.0 <= clock.elapsed() - began < 4.2

    run_virtual(main())
