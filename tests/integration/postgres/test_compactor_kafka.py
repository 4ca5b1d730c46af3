"""The compactor as it is deployed: its own consumer group, the log on a real Kafka, the tables on a real Postgres."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.membership import KafkaMembership
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.postgres import PostgresStore, migrate, open_store
from runfold.adapters.system import SystemChance, SystemClock
from runfold.codec import log as log_codec
from runfold.core.events import Cause, InputSettled, LogRecordBody, PartitionClaimed, Settlement
from runfold.core.fence import HEADER
from runfold.core.state import Status
from runfold.ports.log import LogUnrecoverable
from runfold.ports.topics import Topics
from runfold.runtime.compactor import Compactor, CompactorSettings
from runfold.runtime.restore import restore
from tests.unit.core.building import Run, started

pytestmark = pytest.mark.integration

PARTITIONS = 2


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> Iterator[Topics]:
    """Make the topics of one test."""
    names = Topics(topic_prefix)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names.all]).values():
        made.result()
    yield names
    for deleted in admin.delete_topics(list(names.all)).values():
        deleted.result()


@pytest.fixture
async def store(postgres_dsn: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
    """Give an empty store."""
    await migrate(postgres_dsn, postgres_schema)
    opened = await open_store(postgres_dsn, postgres_schema)
    yield opened
    await opened.close()


class _Writer:
    """Writes a log by hand; a plain client, as an executor's producer is one."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topics = topics

    def write(self, partition: int, records: Sequence[LogRecordBody]) -> None:
        """Append records to the log."""
        for record in records:
            head, value = log_codec.encode(record)
            headers: list[tuple[str, str | bytes | None]] = [(HEADER, head)]
            key = log_codec.key_of(record)
            self._producer.produce(self._topics.log, value, key, partition, headers=headers)
        self._producer.flush(10)

    def approve(self, partition: int, value: bytes) -> None:
        """Append an approval."""
        self._producer.produce(self._topics.approvals, value, b"run", partition)
        self._producer.flush(10)


@asynccontextmanager
async def _compacting(bootstrap: str, topics: Topics, store: PostgresStore) -> AsyncIterator[Compactor]:
    """Run one process's compactor until the block ends, then let it leave its group."""
    config = KafkaConfig.load(bootstrap, None)
    log, inputs, publisher = KafkaLog(config, topics), KafkaInputs(config, topics), KafkaPublisher(config)
    compactor = Compactor(
        log=log,
        store=store,
        publisher=publisher,
        inputs=inputs,
        blobs=MemoryBlobs(),
        clock=SystemClock(),
        chance=SystemChance(),
        settings=CompactorSettings(topics.dead, topics.notifications, snapshot_every=10),
    )
    await publisher.start(topics.notifications)
    membership = KafkaMembership(config, topics.prefix + "compactor", topics.log)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(membership.run(compactor))
            yield compactor
            await membership.leave()
    finally:
        await publisher.close()
        await inputs.close()
        await log.close()


async def _applied(store: PostgresStore, partition: int, offset: int) -> None:
    async with asyncio.timeout(30):
        while (row := await store.partition(partition)) is None or row.applied < offset:  # noqa: ASYNC110 - its state
            await asyncio.sleep(0.01)


async def test_a_group_compacts_every_partition_and_goes_on_after_a_restart(
    kafka_bootstrap: str, topics: Topics, store: PostgresStore
) -> None:
    writer = _Writer(kafka_bootstrap, topics)
    claim = PartitionClaimed(owner="o", revision="r", nonce="n", at=1)
    runs = [Run(started(run_id=f"run-{partition}")) for partition in range(PARTITIONS)]
    for partition, run in enumerate(runs):
        run.at_step(9)
        writer.write(partition, [claim, *run.events])
    writer.approve(0, b"not JSON")
    settled = InputSettled(
        epoch=0, at=1, cause=Cause(topics.approvals, 0, 0), outcome=Settlement.DEAD, reason="malformed", detail="?"
    )
    writer.write(0, [settled])
    async with _compacting(kafka_bootstrap, topics, store):
        await _applied(store, 0, 2 + len(runs[0].events))
        await _applied(store, 1, 1 + len(runs[1].events))

    known = len(runs[1].events)
    runs[1].do(runs[1].next.answer("g"))
    runs[1].do(runs[1].next.gate("g"))
    writer.write(1, runs[1].events[known:])
    log = KafkaLog(KafkaConfig.load(kafka_bootstrap, None), topics)
    try:
        async with _compacting(kafka_bootstrap, topics, store) as compactor:
            await _applied(store, 1, 1 + len(runs[1].events))
            assert not any(status.stopped for status in compactor.status())
        for partition, run in enumerate(runs):
            row, stored = await store.load_partition(partition)
            end = (await log.bounds(partition)).end
            assert row is not None
            replay = await restore(partition, log, store, row, stored)
            await replay.read(row.applied, end)
            found = await store.run(run.state.run_id)
            assert found is not None
            if found.status is Status.RUNNING:
                assert replay.runs[run.state.run_id].state == run.state
            else:
                watermark, covered = await store.covered_as_of(partition, {run.state.run_id: run.state.seq})
                assert (watermark, covered) == (row.watermark, {run.state.run_id})
        inputs = KafkaInputs(KafkaConfig.load(kafka_bootstrap, None), topics)
        dead = await inputs.fetch(topics.dead, 0, 0)
        await inputs.close()
        assert dead is not None
        assert (dead.key, dead.value, dict(dead.headers)["reason"]) == (b"run", b"not JSON", b"malformed")
        assert [wait.run_id for wait in await store.waits()] == ["run-1"]
        assert json.loads((await _only_notification(kafka_bootstrap, topics)) or b"{}")["run_id"] == "run-1"
    finally:
        await log.close()


async def _only_notification(bootstrap: str, topics: Topics) -> bytes | None:
    inputs = KafkaInputs(KafkaConfig.load(bootstrap, None), topics)
    try:
        for partition in range(PARTITIONS):
            try:
                record = await inputs.fetch(topics.notifications, partition, 0)
            except LogUnrecoverable:
                continue  # it stands in the other one
            if record is not None:
                return record.value
        return None
    finally:
        await inputs.close()
