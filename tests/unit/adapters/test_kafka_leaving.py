"""A client that does not come back from leaving its group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from runfold.adapters.kafka import clients, streams
from runfold.adapters.kafka import membership as kafka_membership
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.membership import KafkaMembership


class StuckConsumer:
    """Joins, and never leaves, until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def subscribe(self, *_: Any, **__: Any) -> None:
        """See ``Consumer``."""

    def unsubscribe(self) -> None:
        """See ``Consumer``."""

    def poll(self, _: float) -> None:
        """See ``Consumer``."""

    def incremental_assign(self, _: Any) -> None:
        """See ``Consumer``."""

    def incremental_unassign(self, _: Any) -> None:
        """See ``Consumer``."""

    def assignment(self) -> list[Any]:
        """See ``Consumer``."""
        return []

    def close(self) -> None:
        """Hang."""
        self.released.wait()


class AssignedConsumer:
    """Has a partition from its first poll on, and gives it up in a poll behind ``unsubscribe``, as librdkafka does.

    Attributes:
        held_at_close: What was assigned when it was closed.
    """

    def __init__(self) -> None:
        self.held_at_close: list[Any] | None = None
        self._callbacks: dict[str, Callable[[Any, list[Any]], None]] = {}
        self._due: str | None = "on_assign"
        self._assigned: list[Any] = []

    def subscribe(self, _: list[str], **callbacks: Callable[[Any, list[Any]], None]) -> None:
        """See ``Consumer``."""
        self._callbacks = callbacks

    def unsubscribe(self) -> None:
        """See ``Consumer``."""
        self._due = "on_revoke"

    def poll(self, _: float) -> None:
        """See ``Consumer``."""
        due, self._due = self._due, None
        if due is not None:
            self._callbacks[due](self, [TopicPartition("topic", 0)])

    def pause(self, _: Any) -> None:
        """See ``Consumer``."""

    def incremental_assign(self, partitions: list[Any]) -> None:
        """See ``Consumer``."""
        self._assigned = partitions

    def incremental_unassign(self, _: Any) -> None:
        """See ``Consumer``."""
        self._assigned = []

    def assignment(self) -> list[Any]:
        """See ``Consumer``."""
        return self._assigned

    def close(self) -> None:
        """See ``Consumer``."""
        self.held_at_close = self._assigned


class Told:
    """A listener; ``calls``: what it was told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.assigned_once = asyncio.Event()

    async def assigned(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""
        self.calls.append(f"assigned {list(partitions)}")
        self.assigned_once.set()

    async def revoked(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""
        self.calls.append(f"revoked {list(partitions)}")

    async def lost(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""


async def test_a_member_whose_client_does_not_leave_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was assigned is drained by then: waiting on, the process would be killed."""
    consumer = StuckConsumer()
    monkeypatch.setattr(kafka_membership, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(kafka_membership, "CLOSE_S", 0.2)
    member = KafkaMembership(KafkaConfig("127.0.0.1:1"), "group", "topic")
    running = asyncio.create_task(member.run(Told()))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            await member.leave()
            await running
    finally:
        consumer.released.set()


async def test_a_member_gives_up_everything_before_its_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within ``close`` librdkafka may wait for ever for an unassignment, and nothing else of the process would run."""
    consumer, told = AssignedConsumer(), Told()
    monkeypatch.setattr(kafka_membership, "make_consumer", lambda *_: consumer)
    member = KafkaMembership(KafkaConfig("127.0.0.1:1"), "group", "topic")
    running = asyncio.create_task(member.run(told))
    async with asyncio.timeout(5):
        await told.assigned_once.wait()
        await member.leave()
        await running
    assert told.calls == ["assigned [0]", "revoked [0]"]
    assert consumer.held_at_close == []


async def test_readers_whose_client_does_not_close_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stops is not held up by what it only read with."""
    consumer = StuckConsumer()
    monkeypatch.setattr(streams, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(clients, "CLOSE_S", 0.2)
    reading = streams.Streams(KafkaConfig("127.0.0.1:1"), Message.value, "reader")
    reading.shut(reading.open("topic", 0, 0, asyncio.Event()))
    try:
        async with asyncio.timeout(5):
            await reading.close()
    finally:
        consumer.released.set()
