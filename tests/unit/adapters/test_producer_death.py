"""A fatal error of librdkafka's producer. A real one cannot be provoked from Python, so its client is scripted here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from runfold.adapters.kafka import producer as module
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.producer import AckedProducer, Delivery, NotProduced

FATAL = KafkaError(KafkaError._FATAL, "out of order sequence number")


class Delivered:
    """A delivered message."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        """Give the only one."""
        return 0

    def offset(self) -> int:
        """Give its place."""
        return self._offset


class Scripted:
    """librdkafka's producer, as far as it is used: delivers on poll, or dies as told."""

    made: list[Scripted]

    def __init__(self, _settings: object, heard: Callable[[KafkaError], None]) -> None:
        self.heard = heard
        self.queue: list[Callable[..., None]] = []
        self.die_in_poll = self.die_in_produce = self.hold = self.lose = False
        self.offset = 0
        Scripted.made.append(self)

    def produce(self, *_record: object, on_delivery: Callable[..., None], **_headers: object) -> None:
        """Queue, or die."""
        if self.die_in_produce:
            raise KafkaException(FATAL)
        self.queue.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        """Deliver what is queued, or die."""
        if self.die_in_poll:
            raise KafkaException(FATAL)
        if self.lose:
            self.heard(FATAL)
        elif not self.hold:
            while self.queue:
                self.queue.pop(0)(None, Delivered(self.offset))
                self.offset += 1
        return 0

    def purge(self, **_how: Any) -> None:
        """Report everything that is queued, as the real one does: too late to count."""
        for on_delivery in self.queue:
            on_delivery(KafkaError(KafkaError._PURGE_QUEUE), Delivered(-1))


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> AckedProducer:
    """Give a producer on scripted clients."""
    Scripted.made = []
    monkeypatch.setattr(module, "make_producer", Scripted)
    monkeypatch.setattr(module, "_POLL_S", 0.001)
    return AckedProducer(KafkaConfig("host:1"), 1000)


async def until(state: Callable[[], bool]) -> None:
    """Let the loop turn until a state is reached."""
    async with asyncio.timeout(10):
        while not state():  # noqa: ASYNC110 - a state of objects that have no events
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["die_in_poll", "lose"])
async def test_everything_in_flight_is_reported_in_order_and_a_new_producer_goes_on(
    producer: AckedProducer, how: str
) -> None:
    """Whether the error is raised by poll or heard by the callback; late reports of the dead one change nothing."""
    told: list[tuple[str, Delivery]] = []

    def append(name: str) -> None:
        producer.produce("log", 0, None, name.encode(), (), lambda delivery: told.append((name, delivery)))

    append("first")
    await until(lambda: told == [("first", (0, 0))])
    Scripted.made[0].hold = True
    for name in ("a", "b", "c"):
        append(name)
    setattr(Scripted.made[0], how, True)
    await until(lambda: len(told) == 4)
    assert [(name, isinstance(delivery, KafkaError)) for name, delivery in told[1:]] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]
    append("later")
    await until(lambda: len(told) == 5)
    assert told[4] == ("later", (0, 0))
    assert len(Scripted.made) == 2
    await producer.close()
    assert len(told) == 5


async def test_a_produce_that_finds_the_producer_dead_is_not_taken(producer: AckedProducer) -> None:
    """Code ``_FATAL`` with ``fatal()`` False: those in flight hear of it after ``produce`` has raised, not within."""
    told: list[Delivery] = []
    producer.produce("log", 0, None, b"x", (), told.append)
    await until(lambda: len(told) == 1)
    Scripted.made[0].hold = True
    producer.produce("log", 0, None, b"x", (), told.append)
    Scripted.made[0].die_in_produce = True
    with pytest.raises(NotProduced, match="out of order"):
        producer.produce("log", 0, None, b"x", (), told.append)
    assert len(told) == 1
    producer.produce("log", 0, None, b"x", (), told.append)
    await until(lambda: len(told) == 3)
    assert isinstance(told[1], KafkaError)
    assert told[2] == (0, 0)
    await producer.close()
    with pytest.raises(NotProduced, match="closed"):
        producer.produce("log", 0, None, b"x", (), told.append)
