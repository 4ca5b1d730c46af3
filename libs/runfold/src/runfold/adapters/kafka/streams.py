"""A plain consumer for many partitions: one thread polls, each partition's records go into a bounded buffer.

Only the poll thread touches the consumer; opening and closing are commands to it. A partition whose reader is slow is
paused and does not hold up the others.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from runfold.adapters.kafka.clients import Heard, join, make_consumer
from runfold.adapters.kafka.config import LOGGER, KafkaConfig
from runfold.adapters.kafka.errors import KafkaReadFailed, kafka_error
from runfold.adapters.kafka.messages import number

T = TypeVar("T")

# How long a command may wait for its turn; a consumer without partitions is not polled at all.
_POLL_S: Final = 0.02
_DRAIN: Final = 1000
_FULL_RECORDS: Final = 20_000
_FULL_BYTES: Final = 16 << 20
_FULL_WAIT_S: Final = 0.005

_GONE: Final = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - librdkafka's own code
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001 - the same
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class Fetching(NamedTuple):
    """When a broker answers a fetch.

    Attributes:
        wait_ms: At the latest.
        min_bytes: As soon as there is so much.
    """

    wait_ms: int
    min_bytes: int


PROMPT: Final = Fetching(100, 1)
"""For whoever acts on a record."""
BRIEF: Final = Fetching(5, 1)
"""For streams that are opened for what exists already and shut soon: a pending fetch must not hold up the next."""
GATHERED: Final = Fetching(40, 64 << 10)
"""For whoever lingers over records anyway: else a log that many write to costs a fetch for nearly every record."""


class OffsetGone(Exception):
    """The next offset to read does not exist: deleted by retention, or beyond the end."""


class Stream(Generic[T]):
    """The records of one partition, in order, from one offset on. Its methods belong to the event loop.

    Attributes:
        position: Offset of the next record that ``take`` gives (or of a later one, where offsets have holes).
    """

    def __init__(self, topic: str, partition: int, start: int, wake: asyncio.Event) -> None:
        self.topic = topic
        self.partition = partition
        self.position = start
        self._wake = wake
        self._records: deque[tuple[int, int, T]] = deque()  # offset, bytes, record
        self._error: Exception | None = None
        # Each counter has one writer: the poll thread counts what comes, the loop what goes.
        self.came = [0, 0]
        self.went = [0, 0]

    def put(self, records: Sequence[tuple[int, int, T]], error: Exception | None) -> None:
        """Add what the poll thread has read."""
        self._records.extend(records)
        self._error = self._error or error
        self._wake.set()

    def take(self, max_records: int) -> list[T]:
        """Take what is there, [] if nothing is.

        Raises:
            OffsetGone: Everything before was taken, and the next record does not exist.
            KafkaReadFailed: The same, and Kafka refuses.
        """
        count = min(len(self._records), max_records)
        if count <= 0:
            if self._error is not None:
                raise self._error
            return []
        popped = [self._records.popleft() for _ in range(count)]
        self.position = popped[-1][0] + 1
        self.went[0] += count
        self.went[1] += sum(size for _, size, _ in popped)
        return [record for _, _, record in popped]

    def fill(self) -> float:
        """Say how full the buffer is, 1.0 being full (poll thread)."""
        records, size = (came - went for came, went in zip(self.came, self.went, strict=True))
        return max(records / _FULL_RECORDS, size / _FULL_BYTES)


class Streams(Generic[T]):
    """One consumer and its thread, which lives from the first ``open`` to ``close``.

    Args:
        config: How to reach Kafka.
        convert: From a message to what readers get; called in the poll thread, must not fail.
        name: Of the thread.
        fetching: How soon records come.
    """

    def __init__(
        self, config: KafkaConfig, convert: Callable[[Message], T], name: str, *, fetching: Fetching = PROMPT
    ) -> None:
        self._settings = config.reader(fetching.wait_ms, fetching.min_bytes)
        self._convert = convert
        self._name = name
        self._commands: queue.SimpleQueue[Callable[[Consumer], None] | None] = queue.SimpleQueue()
        self._streams: dict[tuple[str, int], Stream[T]] = {}  # poll thread only, as the next one
        self._paused: set[tuple[str, int]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self, topic: str, partition: int, start: int, wake: asyncio.Event) -> Stream[T]:
        """Read a partition from ``start`` on; ``wake`` is set when records come.

        A second stream of the same partition takes the place of the first, which gets nothing more.
        """
        self._run()
        stream: Stream[T] = Stream(topic, partition, start, wake)
        self._commands.put(lambda consumer: self._assign(consumer, stream))
        return stream

    def shut(self, stream: Stream[T]) -> None:
        """Stop reading for a stream; nothing if it was replaced or shut already."""
        self._commands.put(lambda consumer: self._unassign(consumer, stream))

    async def close(self) -> None:
        """Stop the thread and close the consumer."""
        if self._thread is not None:
            self._commands.put(None)
            await join(self._thread)
            self._thread = None

    def _run(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            # Made here, so that a bad setting is raised to who opens.
            consumer = make_consumer(self._settings, Heard())
            self._thread = threading.Thread(target=self._poll, args=(consumer,), name=self._name, daemon=True)
            self._thread.start()

    # What follows runs in the poll thread.

    def _poll(self, consumer: Consumer) -> None:
        try:
            while (error := self._serve(consumer)) is not None:
                self._fail(KafkaReadFailed(kafka_error(error).str()))
                consumer.close()
                consumer = make_consumer(self._settings, Heard())  # for who opens from now on
        except RuntimeError as error:  # The loop was closed without closing us: nobody is left to read.
            LOGGER.info("%s ends: %s", self._name, error)
        finally:
            consumer.close()

    def _serve(self, consumer: Consumer) -> KafkaException | None:
        """Read until told to stop, or until the client fails: that is given back."""
        try:
            while self._obey(consumer):
                if self._is_full():
                    time.sleep(_FULL_WAIT_S)
                    continue
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._distribute([first, *consumer.consume(_DRAIN, 0)])
                self._balance(consumer)
        except KafkaException as error:
            return error
        return None

    def _obey(self, consumer: Consumer) -> bool:
        """Do what was asked; wait for a command while nothing is read. False: stop."""
        while not self._streams or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command(consumer)
        return True

    def _assign(self, consumer: Consumer, stream: Stream[T]) -> None:
        place = (stream.topic, stream.partition)
        if place in self._streams:
            self._unassign(consumer, self._streams[place])
        self._streams[place] = stream
        consumer.incremental_assign([TopicPartition(*place, stream.position)])

    def _unassign(self, consumer: Consumer, stream: Stream[T]) -> None:
        place = (stream.topic, stream.partition)
        if self._streams.get(place) is stream:
            del self._streams[place]
            self._paused.discard(place)
            consumer.incremental_unassign([TopicPartition(*place)])

    def _distribute(self, messages: Sequence[Message]) -> None:
        batches: defaultdict[tuple[str, int], list[tuple[int, int, T]]] = defaultdict(list)
        for message in messages:
            place = (message.topic() or "", number(message.partition()))
            error = message.error()
            if error is not None:
                # Records of the same partition before it go first.
                self._deliver(place, batches.pop(place, []), _reading_error(place, error))
            elif place in self._streams:
                batches[place].append((number(message.offset()), len(message), self._convert(message)))
        for place, records in batches.items():
            self._deliver(place, records, None)

    def _deliver(self, place: tuple[str, int], records: Sequence[tuple[int, int, T]], error: Exception | None) -> None:
        stream = self._streams.get(place)
        if stream is None:
            if error is not None and not isinstance(error, OffsetGone):
                LOGGER.warning("kafka consumer: %s", error)
            return
        stream.came[0] += len(records)
        stream.came[1] += sum(size for _, size, _ in records)
        self._on_loop(stream, records, error)

    def _fail(self, error: Exception) -> None:
        streams, self._streams, self._paused = self._streams, {}, set()
        for stream in streams.values():
            self._on_loop(stream, [], error)

    def _on_loop(self, stream: Stream[T], records: Sequence[tuple[int, int, T]], error: Exception | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(stream.put, records, error)

    def _is_full(self) -> bool:
        """Whether nobody waits for anything. Not to poll costs nothing then; a pause throws away what is fetched."""
        return all(stream.fill() >= 1.0 for stream in self._streams.values())

    def _balance(self, consumer: Consumer) -> None:
        """Pause what is full while others are not, resume what is half empty again."""
        if self._is_full():
            return
        for place, stream in self._streams.items():
            fill = stream.fill()
            if fill >= 1.0 and place not in self._paused:
                self._paused.add(place)
                consumer.pause([TopicPartition(*place)])
            elif fill <= 0.5 and place in self._paused:  # noqa: PLR2004 - half
                self._paused.discard(place)
                consumer.resume([TopicPartition(*place)])


def _reading_error(place: tuple[str, int], error: KafkaError) -> Exception:
    message = f"{place[0]}[{place[1]}]: {error.str()}"
    return OffsetGone(message) if error.code() in _GONE else KafkaReadFailed(message)
