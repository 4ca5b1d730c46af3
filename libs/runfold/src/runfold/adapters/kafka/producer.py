"""One idempotent producer with one poll thread, which brings acknowledgements to the event loop in batches.

A fatal error makes a librdkafka producer useless and may swallow delivery reports. Then every record in flight has an
unknown outcome, is reported so, and the next record goes to a new producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from runfold.adapters.kafka.clients import Heard, join, make_producer
from runfold.adapters.kafka.config import LOGGER, KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable, is_fatal, kafka_error
from runfold.adapters.kafka.messages import number
from runfold.adapters.threads import in_daemon_thread

_POLL_S: Final = 0.1

Delivery = tuple[int, int] | KafkaError
"""Partition and offset, or why the record failed or nobody knows."""

Headers = tuple[tuple[str, bytes], ...]


class NotProduced(Exception):
    """A record was not taken; ``on_delivery`` will not be called."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class AckedProducer:
    """Produces, and calls back on the event loop. All methods belong to the loop's thread.

    Args:
        config: How to reach Kafka.
        max_record: Bytes of the largest record that will be produced.
    """

    def __init__(self, config: KafkaConfig, max_record: int) -> None:
        self._settings = config.producer(max_record)
        self._line: _Line | None = None
        self._closed = False

    async def start(self, topic: str, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - librdkafka does the waiting
        """Connect, and be ready: the first record of a cold producer takes half a second.

        Raises:
            KafkaConfigError: A setting is refused.
            KafkaUnavailable: No broker answered in ``timeout`` seconds.
        """
        await in_daemon_thread(partial(self._current().warm_up, topic, timeout))

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: Callable[[Delivery], None],
    ) -> None:
        """Produce one record, without waiting; ``partition`` -1: by the key.

        Raises:
            NotProduced: Queue full, record too large, not allowed, closed, or the producer died of it.
        """
        if self._closed:
            raise NotProduced(_unknown_outcome("the producer is closed"))
        self._current().produce(topic, partition, key, value, headers, on_delivery)

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - librdkafka does the waiting
        """Wait up to ``timeout`` seconds for what is in flight, then give up; what is left is reported as unknown."""
        self._closed = True
        if self._line is not None:
            await self._line.close(timeout)

    def _current(self) -> _Line:
        if self._line is None or self._line.dead:
            self._line = _Line(self._settings)
        return self._line


class _Line:
    """One librdkafka producer, from its making to its end."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.dead = False
        self._loop = asyncio.get_running_loop()
        self._heard = Heard(self._on_error)
        self._producer: Producer = make_producer(settings, self._heard)
        self._waiting: dict[int, Callable[[Delivery], None]] = {}  # by number, in the order of produce; loop only
        self._count = 0
        self._reports: list[tuple[int, Delivery]] = []  # poll thread only
        self._fatal: KafkaError | None = None
        self._drained = asyncio.Event()
        self._stop = threading.Event()
        self._buried = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="runfold-kafka-producer", daemon=True)
        self._thread.start()

    def warm_up(self, topic: str, timeout: float) -> None:
        """Fetch the topic's metadata (any thread)."""
        try:
            self._producer.list_topics(topic, timeout=timeout)
        except KafkaException as error:
            message = f"Kafka does not answer: {self._heard.last or kafka_error(error).str()}"
            raise KafkaUnavailable(message) from error

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: Callable[[Delivery], None],
    ) -> None:
        count = self._count

        def report(error: KafkaError | None, message: Message) -> None:
            place = (number(message.partition()), number(message.offset()))
            self._reports.append((count, error if error is not None else place))

        try:
            self._producer.produce(topic, value, key, partition, on_delivery=report, headers=list(headers))
        except BufferError:
            raise NotProduced(KafkaError(KafkaError._QUEUE_FULL)) from None  # noqa: SLF001 - librdkafka's own code
        except KafkaException as error:
            reason = kafka_error(error)
            if is_fatal(reason):
                self.dead = True
                self._loop.call_soon(self._die, reason)
            raise NotProduced(reason) from error
        self._count += 1
        self._waiting[count] = on_delivery
        self._drained.clear()

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109 - nothing is raised at the end of it
        """Wait for what is in flight, stop the thread, and report what is left as unknown."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if self._waiting:
                    await self._drained.wait()
        self._die(_unknown_outcome("the producer was closed before the acknowledgement came"))
        await join(self._thread)

    def _poll(self) -> None:
        """Serve librdkafka (poll thread). Nothing here polls from within a callback."""
        while not self._stop.is_set():
            try:
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                # With an error_cb only a fatal error is raised here.
                self._fatal = self._fatal or kafka_error(error)
            self._hand_over()
        # Nobody produces any more. The destructor runs here, not on the loop; queued records would keep it waiting.
        self._buried.wait()
        with contextlib.suppress(KafkaException):
            self._producer.purge(blocking=False)
            self._producer.poll(0)
        del self._producer

    def _hand_over(self) -> None:
        reports, self._reports = self._reports, []
        try:
            if reports:
                self._loop.call_soon_threadsafe(self._resolve, reports)
            if self._fatal is not None:
                self._stop.set()
                self._loop.call_soon_threadsafe(self._die, self._fatal)
        except RuntimeError:  # The loop was closed without closing us: nobody is left to tell.
            self._stop.set()
            self._buried.set()

    def _on_error(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._fatal = error

    def _resolve(self, reports: list[tuple[int, Delivery]]) -> None:
        for count, delivery in reports:
            on_delivery = self._waiting.pop(count, None)
            if on_delivery is not None:
                self._tell(on_delivery, delivery)
        if not self._waiting:
            self._drained.set()

    def _die(self, reason: KafkaError) -> None:
        """Report everything in flight as unknown, in order; from now on another line produces."""
        self.dead = True
        self._stop.set()
        self._buried.set()
        waiting, self._waiting = self._waiting, {}
        self._drained.set()
        if waiting:
            LOGGER.error("kafka producer: %d records have an unknown outcome: %s", len(waiting), reason.str())
        for on_delivery in waiting.values():
            self._tell(on_delivery, reason)

    def _tell(self, on_delivery: Callable[[Delivery], None], delivery: Delivery) -> None:
        """Call back; one caller's exception must not swallow another's acknowledgement."""
        try:
            on_delivery(delivery)
        except Exception as error:  # noqa: BLE001 - handed to the loop's handler, as call_soon would
            self._loop.call_exception_handler({"message": "a delivery callback raised", "exception": error})


def _unknown_outcome(why: str) -> KafkaError:
    return KafkaError(KafkaError._PURGE_INFLIGHT, why)  # noqa: SLF001 - librdkafka's own code for it
