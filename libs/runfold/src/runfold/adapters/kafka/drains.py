"""Drain marks on Kafka: metadata of offsets that are committed for a group of their own, which has no members.

A group's own offsets cannot hold them: who has left a group may not commit for it any more.

A consumer asks, never an admin client: librdkafka's admin questions about groups abort the whole process when an answer
comes after their time-out (confluentinc/librdkafka#4605; seen here in chaos, with a broker that came back).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from runfold.adapters.kafka.clients import Heard, join, make_consumer
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import kafka_error
from runfold.ports.drains import DrainsUnavailable

_TRY_S: Final = 1.0
_AGAIN_S: Final = 0.1

_Places = list[TopicPartition]
_Question = Callable[[Consumer], _Places]


class KafkaDrains:
    """See ``ports.drains``. Questions are put one after the other, in a thread of their own.

    Args:
        config: How to reach Kafka.
        group: Whose offsets hold the marks; nobody may be a member of it.
        topic: A topic with as many partitions.
        timeout: Seconds a question may take, and one try more: short, a take-over waits for it.
    """

    def __init__(self, config: KafkaConfig, group: str, topic: str, timeout: float = 2.0) -> None:
        self._settings = config.outsider(group, _TRY_S)
        self._topic = topic
        self._timeout = timeout
        self._questions: queue.SimpleQueue[tuple[_Question, Future[_Places]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to connect, unless that was done: a take-over waits for the answer to its question.

        Raises:
            KafkaConfigError: A setting is refused.
        """
        if self._thread is None or not self._thread.is_alive():
            # Made here, so that a bad setting is raised to who asks.
            consumer = make_consumer(self._settings, Heard())
            self._thread = threading.Thread(
                target=self._answer, args=(consumer,), name="runfold-kafka-drains", daemon=True
            )
            self._thread.start()

    async def mark(self, partitions: Sequence[int]) -> None:
        """Say that these are being drained."""
        await self._write(partitions, uuid.uuid4().hex)

    async def clear(self, partitions: Sequence[int]) -> None:
        """Say that these are not being drained any more."""
        await self._write(partitions, "")

    async def marks(self, partitions: Sequence[int]) -> dict[int, str]:
        """Give the marks that stand on some partitions."""
        places = [TopicPartition(self._topic, each) for each in partitions]
        found = await self._ask(lambda consumer: consumer.committed(places, timeout=_TRY_S), "which marks stand")
        _check(found, "could not be read")
        return {at.partition: at.metadata for at in found if at.metadata}

    async def close(self) -> None:
        """Stop the thread and close the consumer."""
        if self._thread is not None:
            self._questions.put(None)
            await join(self._thread)
            self._thread = None

    async def _write(self, partitions: Sequence[int], mark: str) -> None:
        places = [TopicPartition(self._topic, each, 0, mark) for each in partitions]
        written = await self._ask(
            lambda consumer: consumer.commit(offsets=places, asynchronous=False) or [], "that marks were written"
        )
        _check(written, "were refused")

    async def _ask(self, question: _Question, what: str) -> _Places:
        """Ask, and ask again: right after the start of a broker there is no coordinator."""
        self.start()
        deadline = asyncio.get_running_loop().time() + self._timeout
        while True:
            answer: Future[_Places] = Future()
            self._questions.put((question, answer))
            try:
                async with asyncio.timeout_at(deadline + _TRY_S):
                    return await asyncio.wrap_future(answer)
            except TimeoutError:
                raise DrainsUnavailable(f"Kafka did not tell {what}: no answer in time") from None
            except KafkaException as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise DrainsUnavailable(f"Kafka did not tell {what}: {kafka_error(error).str()}") from error
            await asyncio.sleep(_AGAIN_S)

    def _answer(self, consumer: Consumer) -> None:
        """Put one question after the other (thread). Those that nobody waits for any more are left out."""
        try:
            while (asked := self._questions.get()) is not None:
                question, answer = asked
                if answer.set_running_or_notify_cancel():
                    try:
                        answer.set_result(question(consumer))
                    except Exception as error:  # noqa: BLE001 - raised to who asked
                        answer.set_exception(error)
                # Nothing is assigned: this serves what the client has to say, which ``Heard`` logs.
                with contextlib.suppress(KafkaException):
                    consumer.poll(0)
        finally:
            consumer.close()


def _check(places: Sequence[TopicPartition], what: str) -> None:
    wrong = [f"{at.partition}: {at.error.str()}" for at in places if at.error is not None]
    if wrong:
        raise DrainsUnavailable(f"drain marks {what}: {', '.join(wrong)}")
