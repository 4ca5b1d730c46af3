"""The input topics on Kafka."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import Message

from runfold.adapters.kafka.config import LOGGER, KafkaConfig
from runfold.adapters.kafka.messages import header_pairs, number
from runfold.adapters.kafka.offsets import Offsets
from runfold.adapters.kafka.streams import BRIEF, OffsetGone, Stream, Streams
from runfold.ports.inputs import InputRecord
from runfold.ports.log import LogBounds, LogUnrecoverable
from runfold.ports.topics import Topics


class KafkaInputs:
    """The ``Inputs`` of one process: one consumer for all partitions, and one for single records.

    Args:
        config: How to reach Kafka.
        topics: Which topics.
    """

    def __init__(self, config: KafkaConfig, topics: Topics) -> None:
        self._topics = topics.inputs
        self._offsets = Offsets(config)
        self._readers = Streams(config, _record, "runfold-kafka-inputs")
        self._fetches = Streams(config, _record, "runfold-kafka-fetch", fetching=BRIEF)
        self._fetching: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> KafkaInputReader:
        """Read each topic from its next offset on; one that is not named, from 0."""
        reader = KafkaInputReader(self._readers, self._offsets, partition)
        try:
            for topic in self._topics:
                await reader.add(topic, next_offsets.get(topic, 0))
        except BaseException:
            await reader.close()
            raise
        return reader

    async def fetch(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Read one record; None if retention has deleted it."""
        async with self._fetching[topic, partition]:
            exists = await self._offsets.bounds(topic, partition)
            if offset >= exists.end:
                message = f"{topic}[{partition}]: offset {offset} does not exist, the topic ends at {exists.end}"
                raise LogUnrecoverable(message)
            if offset < exists.begin:
                return None
            wake = asyncio.Event()
            stream = self._fetches.open(topic, partition, offset, wake)
            try:
                while not (records := stream.take(1)):
                    await wake.wait()
                    wake.clear()
            except OffsetGone:
                return None
            finally:
                self._fetches.shut(stream)
        return records[0] if records[0].offset == offset else None

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """Say what exists of a topic now."""
        return await self._offsets.bounds(topic, partition)

    async def identities(self) -> dict[str, str]:
        """Say which topics these are."""
        found = await asyncio.gather(*(self._offsets.identity(topic) for topic in self._topics))
        return {topic: identity.topic_id for topic, identity in zip(self._topics, found, strict=True)}

    async def close(self) -> None:
        """Stop the consumers."""
        await asyncio.gather(self._readers.close(), self._fetches.close())


class KafkaInputReader:
    """Reads the inputs of one partition; see ``ports.inputs.InputReader``."""

    def __init__(self, streams: Streams[InputRecord], offsets: Offsets, partition: int) -> None:
        self.skipped: dict[str, tuple[int, int]] = {}
        self._lost_from: dict[str, int] = {}
        self._source = streams
        self._offsets = offsets
        self._partition = partition
        self._wake = asyncio.Event()
        self._open: dict[str, Stream[InputRecord]] = {}

    async def add(self, topic: str, wanted: int) -> None:
        """Read a topic from an offset on, or from the first one that exists."""
        exists = await self._offsets.bounds(topic, self._partition)
        if wanted > exists.end:
            message = (
                f"{topic}[{self._partition}]: offset {wanted} is the next to read, but the topic ends at {exists.end}"
            )
            raise LogUnrecoverable(message)
        if wanted < exists.begin:
            # Until a record is given, whoever reads has not looked: nothing that was lost before may be forgotten.
            self.skipped[topic] = (self._lost_from.setdefault(topic, wanted), exists.begin)
            LOGGER.warning(
                "%s[%d]: offsets %d to %d were deleted unread", topic, self._partition, wanted, exists.begin - 1
            )
        self._open[topic] = self._source.open(topic, self._partition, max(wanted, exists.begin), self._wake)

    async def next(self, max_records: int) -> list[InputRecord]:
        """Wait for records; give at least one."""
        while not (records := await self._take(max_records)):
            await self._wake.wait()
            self._wake.clear()
        return records

    async def close(self) -> None:
        """Stop reading."""
        for stream in self._open.values():
            self._source.shut(stream)
        self._open.clear()

    async def _take(self, max_records: int) -> list[InputRecord]:
        """Take from each topic; one that gave something comes last next time, so that a full one starves nobody."""
        records: list[InputRecord] = []
        for topic, stream in list(self._open.items()):
            try:
                found = stream.take(max_records - len(records))
            except OffsetGone:
                # Nothing was taken from the topics before, or it would be lost if this raises.
                if records:
                    self._wake.set()
                    break
                await self.add(topic, stream.position)
                continue
            if found:
                records += found
                self._lost_from.pop(topic, None)
                self._open[topic] = self._open.pop(topic)
        return records


def _record(message: Message) -> InputRecord:
    return InputRecord(
        message.topic() or "",
        number(message.partition()),
        number(message.offset()),
        message.key(),
        message.value(),
        tuple((name, data or b"") for name, data in header_pairs(message)),
        message.timestamp()[1],
    )
