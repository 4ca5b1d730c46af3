"""Inputs of a foreign producer that uses transactions: committed ones have their effect, aborted ones have none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer

from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.codec.inputs import encode_start
from runfold.core.partitioning import partition_of
from runfold.core.state import Status
from runfold.runtime.compactor import Compactor, CompactorSettings
from runfold.runtime.executor import Executor, ExecutorSettings
from tests.contract.worlds import PARTITIONS, KafkaWorld
from tests.runtime.apps import model_app

pytestmark = pytest.mark.integration

PARTITION = 0
COMMITTED, ABORTED, PLAIN, LAST = RUNS = [
    name for name in (f"run-{number}" for number in range(100)) if partition_of(name, PARTITIONS) == PARTITION
][:4]


@asynccontextmanager
async def _services(world: KafkaWorld, database: MemoryDatabase) -> AsyncIterator[None]:
    """An executor and a compactor in this process, on a real Kafka and a store in memory."""
    executor_settings = ExecutorSettings("executor", PARTITIONS, world.topics)
    compactor_settings = CompactorSettings(
        dead_topic=world.topics.dead, notifications_topic=world.topics.notifications, poll_s=0.1
    )
    store, blobs, clock, chance = MemoryStore(database), MemoryBlobs(), LoopClock(), SeededChance(1)
    log, inputs, publisher, member = await world.log(), await world.inputs(), await world.publisher(), world.member()
    compactor = Compactor(
        log=log,
        store=store,
        publisher=publisher,
        inputs=inputs,
        blobs=blobs,
        clock=clock,
        chance=chance,
        settings=compactor_settings,
    )
    async with model_app("done").running("executor", revision="1") as agents, asyncio.TaskGroup() as group:
        executor = Executor(
            log=log,
            inputs=inputs,
            publisher=publisher,
            store=store,
            blobs=blobs,
            agents=agents,
            clock=clock,
            chance=chance,
            settings=executor_settings,
        )
        working = group.create_task(executor.run(member))
        await compactor.assigned([PARTITION])
        try:
            yield
        finally:
            await compactor.close()
            await member.leave()
            await working


def _produce(world: KafkaWorld, producer: Producer, run_id: str) -> None:
    producer.produce(world.topics.requests, key=run_id, value=encode_start(run_id, "a", "go"), partition=PARTITION)


def _transactional(world: KafkaWorld, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": world.config.bootstrap, "transactional.id": f"{world.topics.log}{name}"})
    producer.init_transactions(30.0)
    return producer


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110 - another program's state
            await asyncio.sleep(0.05)


async def test_transactions_of_a_foreign_producer(kafka_bootstrap: str, topic_prefix: str) -> None:
    """What is committed starts a run, what is aborted does not; both leave nothing behind in the positions.

    While a transaction is open, what stands behind it waits for its end.
    """
    world, database = KafkaWorld(kafka_bootstrap, topic_prefix), MemoryDatabase(LoopClock())
    await world.setup()

    def position() -> tuple[int, set[int]]:
        row = database.partitions.get(PARTITION)
        found = None if row is None else row.positions.of(world.topics.requests)
        return (0, set()) if found is None else (found.next, found.above)

    def has_ended(run_id: str) -> bool:
        return run_id in database.runs and database.runs[run_id].status is Status.COMPLETED

    try:
        async with _services(world, database):
            foreign, plain = _transactional(world, "foreign"), Producer({"bootstrap.servers": kafka_bootstrap})
            for run_id, end in ((COMMITTED, foreign.commit_transaction), (ABORTED, foreign.abort_transaction)):
                foreign.begin_transaction()
                _produce(world, foreign, run_id)
                foreign.flush(30.0)
                if run_id == ABORTED:
                    _produce(world, plain, PLAIN)
                    plain.flush(30.0)
                    await _until(lambda: has_ended(COMMITTED))
                    assert PLAIN not in database.runs, "it stands behind an open transaction"
                end(30.0)
            await _until(lambda: has_ended(PLAIN))
            # Two starts, a marker behind each, the plain one before the second marker; then one more.
            _produce(world, plain, LAST)
            plain.flush(30.0)
            await _until(lambda: has_ended(LAST))
            await _until(lambda: position() == (6, set()))
            assert ABORTED not in database.runs
    finally:
        await world.close()
