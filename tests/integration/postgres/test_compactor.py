"""The compactor on a real Postgres, with the log in memory."""

from collections.abc import AsyncIterator

import pytest

from runfold.adapters.memory.clock import SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.postgres import PostgresStore, migrate, open_store
from runfold.core.state import Status
from runfold.runtime.compactor import Compactor
from runfold.runtime.restore import restore
from tests.unit.compactor.world import World, until
from tests.unit.core.building import Run

pytestmark = pytest.mark.integration


@pytest.fixture
async def store(postgres_dsn: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
    """Give an empty store."""
    await migrate(postgres_dsn, postgres_schema)
    opened = await open_store(postgres_dsn, postgres_schema)
    yield opened
    await opened.close()


def _compactor(world: World, store: PostgresStore) -> Compactor:
    return Compactor(
        log=MemoryLog(world.broker),
        store=store,
        publisher=MemoryPublisher(world.broker),
        inputs=MemoryInputs(world.broker),
        blobs=world.blobs,
        clock=world.clock,
        chance=SeededChance(1),
        settings=world.settings(snapshot_every=7, batch_records=11),
    )


async def _caught_up(world: World, compactor: Compactor) -> None:
    [status] = compactor.status()
    await until(lambda: status.applied == world.end)


def _go_on(world: World, runs: list[Run], turns: range) -> None:
    for turn in turns:
        world.steps(runs[turn % len(runs)], 1)


async def test_a_take_over_finds_every_run_as_it_was_folded(store: PostgresStore) -> None:
    """Running, waiting and ended runs; two compactors one after the other; a corrupt snapshot in between."""
    world = World()
    world.claim()
    runs = [world.begin(f"run-{index}") for index in range(3)]
    waiting = world.gated("waiting")
    first = _compactor(world, store)
    await first.assigned([0])
    _go_on(world, runs, range(20))
    await _caught_up(world, first)
    _go_on(world, runs, range(20, 25))
    await _caught_up(world, first)
    await first.close()

    second = _compactor(world, store)
    await second.assigned([0])
    _go_on(world, runs, range(25, 40))
    known = len(waiting.events)
    waiting.do(waiting.next.resume("waiting:2", "approved"))
    waiting.do(waiting.next.request("g"))
    world.write(waiting, known)
    await _caught_up(world, second)
    await second.close()

    row, stored = await store.load_partition(0)
    assert row is not None
    replay = await restore(0, MemoryLog(world.broker), store, row, stored)
    await replay.read(row.applied, world.end)
    assert {run_id: loaded.state for run_id, loaded in replay.runs.items()} == {
        run.state.run_id: run.state for run in [*runs, waiting]
    }
    found = await store.run("waiting")
    assert found is not None
    assert (found.status, found.seq) == (Status.RUNNING, waiting.state.seq)
    assert await store.waits() == []
    assert {note["id"] for note in world.notifications()} == {"waiting:3"}


async def test_two_compactors_at_once_lose_nothing(store: PostgresStore) -> None:
    world = World()
    world.claim()
    runs = [world.begin(f"run-{index}") for index in range(3)]
    both = [_compactor(world, store) for _ in range(2)]
    for compactor in both:
        await compactor.assigned([0])
    one, two = (compactor.status()[0] for compactor in both)
    for start in range(0, 30, 5):
        _go_on(world, runs, range(start, start + 5))
        await until(lambda: world.end in (one.applied, two.applied))
    for compactor in both:
        await compactor.close()
    row, stored = await store.load_partition(0)
    assert row is not None
    assert row.version == one.commits + two.commits
    assert row is not None
    replay = await restore(0, MemoryLog(world.broker), store, row, stored)
    await replay.read(row.applied, world.end)
    assert {run_id: loaded.state for run_id, loaded in replay.runs.items()} == {
        run.state.run_id: run.state for run in runs
    }
