"""A client that does not come back from leaving its group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Message

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


class NobodysPartitions:
    """A listener that is never told anything."""

    async def assigned(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""

    async def revoked(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""

    async def lost(self, partitions: Sequence[int]) -> None:
        """See ``AssignmentListener``."""


async def test_a_member_whose_client_does_not_leave_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was assigned is drained by then: waiting on, the process would be killed."""
    consumer = StuckConsumer()
    monkeypatch.setattr(kafka_membership, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(clients, "CLOSE_S", 0.2)
    member = KafkaMembership(KafkaConfig("127.0.0.1:1"), "group", "topic")
    running = asyncio.create_task(member.run(NobodysPartitions()))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            await member.leave()
            await running
    finally:
        consumer.released.set()


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
