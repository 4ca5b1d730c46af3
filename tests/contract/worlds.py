"""One Kafka per world, in memory or real, with as many clients of it as a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from runfold.adapters.kafka.admin import setup_topics
from runfold.adapters.kafka.config import KafkaConfig, MemberSettings
from runfold.adapters.kafka.dead import KafkaDeadLetters
from runfold.adapters.kafka.drains import KafkaDrains
from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.membership import KafkaMembership
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.memory import (
    MemoryBroker,
    MemoryDeadLetters,
    MemoryInputs,
    MemoryLog,
    MemoryMembership,
    MemoryPublisher,
)
from runfold.adapters.memory.drains import MemoryDrains
from runfold.ports.dead import DeadLetters
from runfold.ports.drains import Drains
from runfold.ports.inputs import Inputs
from runfold.ports.log import AppendFailed, Log
from runfold.ports.membership import Membership
from runfold.ports.publisher import Publisher
from runfold.ports.topics import Topics

PARTITIONS = 4


class World(Protocol):
    """A Kafka with Runfold's topics, empty at first; each client is that of a "process" of its own."""

    topics: Topics

    async def log(self) -> Log:
        """Make a writer and reader of the log."""
        ...

    async def inputs(self) -> Inputs:
        """Make a reader of the input topics."""
        ...

    async def publisher(self) -> Publisher:
        """Make a publisher."""
        ...

    def dead(self) -> DeadLetters:
        """Make a reader of the dead topic."""
        ...

    def member(self) -> Membership:
        """Make a member of the one group of this world, which shares `requests`."""
        ...

    def drains(self) -> Drains:
        """Make a client of the drain marks."""
        ...

    async def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention."""
        ...

    async def close(self) -> None:
        """Close every client."""
        ...


class MemoryWorld:
    """Everything in memory."""

    def __init__(self) -> None:
        self._broker = MemoryBroker(PARTITIONS, "memory.")
        self._drains = MemoryDrains()
        self.topics = self._broker.topics

    async def log(self) -> Log:
        """Make a writer and reader of the log."""
        return MemoryLog(self._broker)

    async def inputs(self) -> Inputs:
        """Make a reader of the input topics."""
        return MemoryInputs(self._broker)

    async def publisher(self) -> Publisher:
        """Make a publisher."""
        return MemoryPublisher(self._broker)

    def dead(self) -> DeadLetters:
        """Make a reader of the dead topic."""
        return MemoryDeadLetters(self._broker)

    def member(self) -> Membership:
        """Make a member of the one group."""
        return MemoryMembership(self._broker, "executors", self.topics.requests)

    def drains(self) -> Drains:
        """Give the one board of marks."""
        return self._drains

    async def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention."""
        self._broker.delete_before(topic, partition, offset)

    async def close(self) -> None:
        """Nothing is open."""


class KafkaWorld:
    """Topics of their own on a real broker."""

    def __init__(self, bootstrap: str, prefix: str, extra: Mapping[str, str] | None = None) -> None:
        self.config = KafkaConfig(bootstrap, extra or {})
        self.topics = Topics(prefix)
        self._closing: list[Callable[[], Coroutine[Any, Any, None]]] = []

    async def setup(self) -> None:
        """Make the topics."""
        await setup_topics(self.config, self.topics, PARTITIONS, None)

    async def log(self) -> Log:
        """Make a writer and reader of the log."""
        log = KafkaLog(self.config, self.topics)
        self._closing.append(log.close)
        await log.start()
        return log

    async def inputs(self) -> Inputs:
        """Make a reader of the input topics."""
        inputs = KafkaInputs(self.config, self.topics)
        self._closing.append(inputs.close)
        return inputs

    async def publisher(self) -> Publisher:
        """Make a publisher."""
        publisher = KafkaPublisher(self.config)
        self._closing.append(publisher.close)
        await publisher.start(self.topics.requests)
        return publisher

    def dead(self) -> DeadLetters:
        """Make a reader of the dead topic."""
        return KafkaDeadLetters(self.config, self.topics.dead, PARTITIONS)

    def member(self) -> Membership:
        """Make a member of the one group."""
        short = MemberSettings(session_s=6.0, heartbeat_s=0.5)
        return KafkaMembership(self.config, f"{self.topics.prefix}executors", self.topics.requests, short)

    def drains(self) -> Drains:
        """Make a client of the drain marks."""
        # The first question about any group makes the brokers' topic for all of them, which takes seconds.
        drains = KafkaDrains(self.config, f"{self.topics.prefix}draining", self.topics.requests, timeout=20.0)
        self._closing.append(drains.close)
        return drains

    async def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention."""
        admin = AdminClient(self.config.admin())
        admin.list_topics(topic, timeout=30)  # as in adapters/kafka/offsets.py: librdkafka's race is the same here
        place = TopicPartition(topic, partition, offset)
        await asyncio.wrap_future(admin.delete_records([place])[place])

    async def close(self) -> None:
        """Close every client."""
        async with asyncio.TaskGroup() as group:
            for close in self._closing:
                group.create_task(close())


class Acks:
    """What an appender was told, in the order of the telling."""

    def __init__(self) -> None:
        self.told: list[int | AppendFailed] = []
        self._changed = asyncio.Event()

    def __call__(self, outcome: int | AppendFailed) -> None:
        """Serve as ``on_ack``."""
        self.told.append(outcome)
        self._changed.set()

    async def wait(self, count: int, timeout: float = 60.0) -> list[int | AppendFailed]:  # noqa: ASYNC109 - for a test
        """Wait until that many appends were answered."""
        async with asyncio.timeout(timeout):
            while len(self.told) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.told


async def append(log: Log, partition: int, value: bytes, key: str | None = "run-1", head: bytes = b"head") -> int:
    """Append one record and give its offset."""
    acks = Acks()
    log.append(partition, key, head, value, acks)
    offset = (await acks.wait(1))[0]
    assert isinstance(offset, int)
    return offset
