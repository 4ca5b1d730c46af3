"""The log topic on Kafka."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial

from confluent_kafka import KafkaError, Message

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.messages import header, number
from runfold.adapters.kafka.offsets import Offsets
from runfold.adapters.kafka.producer import AckedProducer, Delivery, Headers
from runfold.adapters.kafka.streams import BRIEF, GATHERED, OffsetGone, Stream, Streams
from runfold.adapters.topics import MAX_LOG_RECORD, check_size
from runfold.core.fence import HEADER
from runfold.ports.log import (
    AppendFailed,
    LogBounds,
    LogFollower,
    LogIdentity,
    LogRecord,
    LogUnrecoverable,
    OnAck,
)
from runfold.ports.topics import Topics


class KafkaLog:
    """The ``Log`` of one process: one idempotent producer, one consumer for reading and one for following.

    Args:
        config: How to reach Kafka.
        topics: Which topics.
    """

    def __init__(self, config: KafkaConfig, topics: Topics) -> None:
        self._topic = topics.log
        self._producer = AckedProducer(config, MAX_LOG_RECORD)
        self._offsets = Offsets(config)
        self._reads = Streams(config, _record, "runfold-kafka-read", fetching=BRIEF)
        self._follows = Streams(config, _record, "runfold-kafka-follow", fetching=GATHERED)
        # Appended in this round of the event loop.
        self._burst: list[tuple[int, bytes | None, bytes, Headers, OnAck]] = []
        self._open: dict[int, tuple[Stream[LogRecord], asyncio.Event]] = {}
        self._reading: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        """Connect the producer before it is needed.

        Raises:
            KafkaConfigError: A setting is refused.
            KafkaUnavailable: No broker answers.
        """
        await self._producer.start(self._topic)

    def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
        """Append one record without waiting; see ``ports.log``."""
        encoded = None if key is None else key.encode()
        headers = ((HEADER, head),)
        check_size(encoded, value, headers, MAX_LOG_RECORD, self._topic)

        if not self._burst:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._burst.append((partition, encoded, value, headers, on_ack))

    def _hand_over(self) -> None:
        """Hand over what this round of the event loop has appended, all at once.

        Handed over one by one, between other work, nearly each record would become a request of its own, for the broker
        to answer and for the poll thread to ask for the interpreter's lock.
        """
        burst, self._burst = self._burst, []
        for partition, key, value, headers, on_ack in burst:
            try:
                acknowledge = partial(self._acknowledge, partition, on_ack)
                self._producer.produce(self._topic, partition, key, value, headers, acknowledge)
            except Exception as error:  # noqa: BLE001 - of a new client, too: who appended is told, and the next go on
                failed = AppendFailed(f"{self._topic}[{partition}]: {error}")
                asyncio.get_running_loop().call_soon(on_ack, failed)

    def _acknowledge(self, partition: int, on_ack: OnAck, delivery: Delivery) -> None:
        if isinstance(delivery, KafkaError):
            on_ack(AppendFailed(f"{self._topic}[{partition}]: {delivery.str()}"))
        elif delivery[1] < 0:
            on_ack(AppendFailed(f"{self._topic}[{partition}]: the broker told no offset"))
        else:
            on_ack(delivery[1])

    async def bounds(self, partition: int) -> LogBounds:
        """Give what exists now.

        Raises:
            KafkaUnavailable: No broker answers.
        """
        return await self._offsets.bounds(self._topic, partition)

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read [start, min(end, start + max_records)); a read that goes on where the last one ended is cheap."""
        if start >= end:
            return []
        async with self._reading[partition]:
            stream, wake = await self._stream(partition, start)
            while not (records := self._take(stream, min(max_records, end - start))):
                await self._more(stream, wake)
            if stream.position >= end:
                self._drop(partition)
            return records

    async def follow(self, partition: int, start: int) -> LogFollower:
        """Read from ``start`` on."""
        return KafkaFollower(self._follows, self._topic, partition, start)

    async def identity(self) -> LogIdentity:
        """Say which log this is.

        Raises:
            KafkaUnavailable: No broker answers.
        """
        return await self._offsets.identity(self._topic)

    async def close(self) -> None:
        """Wait some seconds for what is in flight, then let go; what is left is reported as ``AppendFailed``."""
        self._hand_over()
        await asyncio.gather(self._producer.close(), self._reads.close(), self._follows.close())

    async def _stream(self, partition: int, start: int) -> tuple[Stream[LogRecord], asyncio.Event]:
        """Give the stream that stands at ``start``, a new one if need be."""
        opened = self._open.get(partition)
        if opened is not None and opened[0].position == start:
            return opened
        self._drop(partition)
        await self._must_exist(partition, start)
        wake = asyncio.Event()
        opened = self._open[partition] = (self._reads.open(self._topic, partition, start, wake), wake)
        return opened

    def _take(self, stream: Stream[LogRecord], max_records: int) -> list[LogRecord]:
        try:
            return take_contiguous(stream, max_records)
        except LogUnrecoverable:
            self._drop(stream.partition)
            raise

    async def _more(self, stream: Stream[LogRecord], wake: asyncio.Event) -> None:
        """Wait for records; where none come, ask whether there can be any."""
        try:
            async with asyncio.timeout(1.0):
                await wake.wait()
        except TimeoutError:
            await self._must_exist(stream.partition, stream.position)
        wake.clear()

    async def _must_exist(self, partition: int, offset: int) -> None:
        exists = await self.bounds(partition)
        if not exists.begin <= offset < exists.end:
            self._drop(partition)
            message = (
                f"{self._topic}[{partition}]: offset {offset} does not exist: "
                f"the log begins at {exists.begin} and ends at {exists.end}"
            )
            raise LogUnrecoverable(message)

    def _drop(self, partition: int) -> None:
        opened = self._open.pop(partition, None)
        if opened is not None:
            self._reads.shut(opened[0])


class KafkaFollower:
    """Reads one partition of the log on and on."""

    def __init__(self, streams: Streams[LogRecord], topic: str, partition: int, start: int) -> None:
        self._streams = streams
        self._wake = asyncio.Event()
        self._stream = streams.open(topic, partition, start, self._wake)

    async def next(self, max_records: int, timeout: float) -> list[LogRecord]:  # noqa: ASYNC109 - the port's contract
        """Wait up to ``timeout`` seconds for records; [] at the time-out."""
        try:
            async with asyncio.timeout(timeout):
                while not (records := take_contiguous(self._stream, max_records)):
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            return []
        return records

    async def close(self) -> None:
        """Stop reading."""
        self._streams.shut(self._stream)


def take_contiguous(stream: Stream[LogRecord], max_records: int) -> list[LogRecord]:
    """Take records whose offsets have no hole, as those of our log never have.

    Raises:
        LogUnrecoverable: The next record does not exist, or another one stands in its place.
    """
    expected = stream.position
    try:
        records = stream.take(max_records)
    except OffsetGone as error:
        raise LogUnrecoverable(str(error)) from error
    if records and (records[0].offset != expected or records[-1].offset != expected + len(records) - 1):
        message = (
            f"{stream.topic}[{stream.partition}]: {len(records)} records from offset {expected} on end at "
            f"{records[-1].offset}: the topic was compacted, or somebody wrote transactions"
        )
        raise LogUnrecoverable(message)
    return records


def _record(message: Message) -> LogRecord:
    key = message.key()
    return LogRecord(
        number(message.offset()),
        None if key is None else key.decode(errors="replace"),
        header(message, HEADER),
        message.value() or b"",
    )
