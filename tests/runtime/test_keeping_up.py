"""Whether the services keep up, as the log, the inputs and the tables tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runfold.adapters.memory import MemoryBroker, MemoryInputs, MemoryLog
from runfold.adapters.memory.clock import LoopClock
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.core.positions import Position, Positions
from runfold.ports.store import Commit, PartitionRow
from runfold.runtime.keeping_up import PATIENCE_S, Verdict, keeping_up

PARTITIONS = 3
HERE = 1
"""The partition in which something happens."""


class World:
    """Logs, inputs and tables; a time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(PARTITIONS)
        self.store = MemoryStore(MemoryDatabase(LoopClock()))
        self.log = MemoryLog(self.broker)
        self.waited = 0.0
        self.meanwhile: dict[float, Callable[[], object]] = {}
        """What others do, by the second."""
        self._version = 0
        self._rows: list[PartitionRow] = []

    def append(self, records: int = 1) -> None:
        """Let the log grow."""
        for _ in range(records):
            self.broker.append(self.broker.topics.log, HERE, None, b"")

    def ask(self, inputs: int = 1) -> None:
        """Produce inputs."""
        for _ in range(inputs):
            self.broker.append(self.broker.topics.requests, HERE, None, b"{}")

    async def fold(self, applied: int, taken: Position | None = None) -> None:
        """Let the tables come as far as that."""
        identity = await self.log.identity()
        row = PartitionRow(
            partition=HERE,
            version=self._version,
            cluster_id=identity.cluster_id,
            topic_id=identity.topic_id,
            applied=applied,
            epoch=0,
            replay_from=applied,
            replay_epoch=0,
            positions=Positions({self.broker.topics.requests: taken or Position()}),
        )
        await self.store.commit(Commit(row))
        self._version += 1

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and do what is due."""
        self.waited += seconds
        if (action := self.meanwhile.pop(self.waited, None)) is not None:
            done = action()
            if done is not None:
                await done  # type: ignore[misc]

    async def verdict(self) -> Verdict:
        """Look."""
        return await keeping_up(self.log, MemoryInputs(self.broker), self.store, PARTITIONS, self.sleep)


@pytest.fixture
def world() -> World:
    """An installation in which nothing has happened."""
    return World()


async def test_nothing_waits(world: World) -> None:
    """Nor is anything waited for."""
    assert await world.verdict() == Verdict()
    world.append(4)
    world.ask(3)
    await world.fold(4, Position(1, {1, 2}))
    assert await world.verdict() == Verdict()
    assert world.waited == 0


@pytest.mark.parametrize("applied", [None, 3])
async def test_a_log_that_nobody_folds(world: World, applied: int | None) -> None:
    """Whether it was ever folded or not, and though it grows; nothing is known then of the inputs."""
    world.append(5)
    world.ask()
    if applied is not None:
        await world.fold(applied)
    world.meanwhile[2.0] = lambda: world.append(2)
    verdict = await world.verdict()
    assert verdict == Verdict(unfolded={HERE: 7 - (applied or 0)})
    assert world.waited == PATIENCE_S


async def test_inputs_of_a_log_that_nobody_folds_are_unknown(world: World) -> None:
    world.append(5)
    world.ask()
    assert await world.verdict() == Verdict(unfolded={HERE: 5}, unknown=[HERE])


async def test_a_compactor_that_takes_over_late_is_well(world: World) -> None:
    """After a crash its group waits for ten seconds."""
    world.append(5)
    world.meanwhile[11.0] = lambda: world.fold(2)
    assert await world.verdict() == Verdict()
    assert world.waited == 11.0


async def test_a_compactor_that_is_behind_is_waited_for_before_inputs_are_judged(world: World) -> None:
    """It has come on, and may bring the inputs' records with what it still lacks."""
    world.append(5)
    world.ask()
    world.meanwhile[1.0] = lambda: world.fold(2)
    world.meanwhile[3.0] = lambda: world.fold(5, Position(1))
    assert await world.verdict() == Verdict()
    assert world.waited == 3.0


async def test_inputs_that_nobody_takes(world: World) -> None:
    """Those that came meanwhile included; settled ones above the first are none."""
    world.append(4)
    world.ask(4)
    await world.fold(4, Position(1, {2}))
    world.meanwhile[3.0] = world.ask
    assert await world.verdict() == Verdict(untaken={HERE: 3})


async def test_inputs_that_retention_has_deleted_wait_for_nobody(world: World) -> None:
    world.append()
    world.ask(4)
    await world.fold(1, Position(1))
    world.broker.delete_before(world.broker.topics.requests, HERE, 4)
    assert await world.verdict() == Verdict()


@pytest.mark.parametrize("settled", [True, False])
async def test_an_executor_that_does_something_is_well(world: World, *, settled: bool) -> None:
    """It takes an input; or it appends, and has no room for more runs."""
    world.append(4)
    world.ask(2)
    await world.fold(4)

    async def work() -> None:
        world.append()
        await world.fold(5, Position(1 if settled else 0))

    world.meanwhile[2.0] = work
    assert await world.verdict() == Verdict()
    assert world.waited == 2.0


async def test_a_truncated_log_is_no_log_that_is_folded(world: World) -> None:
    world.append(9)
    await world.fold(9)
    world.broker.truncate(world.broker.topics.log, HERE, 4)
    verdict = await world.verdict()
    assert "the log was truncated by 5 records" in verdict.damaged[HERE]
    assert (verdict.unfolded, verdict.untaken, world.waited) == ({}, {}, 0)


async def test_truncated_inputs_are_no_inputs_that_were_taken(world: World) -> None:
    world.append()
    world.ask(3)
    await world.fold(1, Position(3))
    world.broker.truncate(world.broker.topics.requests, HERE, 2)
    assert "it was truncated" in (await world.verdict()).damaged[HERE]
