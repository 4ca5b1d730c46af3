"""A reading client that fails."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from runfold.adapters.kafka import streams
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaReadFailed


class QuietConsumer:
    """Reads nothing. The first one that is made refuses to be assigned anything."""

    made: int = 0
    assigned: list[TopicPartition]

    def __init__(self) -> None:
        type(self).made += 1
        self._is_first = self.made == 1

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """See ``Consumer``."""
        if self._is_first:
            raise KafkaException(KafkaError(KafkaError._STATE))
        type(self).assigned = partitions

    def poll(self, timeout: float) -> None:
        """See ``Consumer``."""
        time.sleep(timeout)

    def close(self) -> None:
        """See ``Consumer``."""


async def test_who_opens_a_stream_behind_a_failure_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams that were open are told; a partition that is claimed again must not wait for a dead thread."""
    monkeypatch.setattr(streams, "make_consumer", lambda *_: QuietConsumer())
    reading: Any = streams.Streams(KafkaConfig("127.0.0.1:1"), Message.value, "reader")
    wake = asyncio.Event()
    first = reading.open("topic", 0, 5, wake)
    async with asyncio.timeout(5):
        await wake.wait()
        with pytest.raises(KafkaReadFailed):
            first.take(1)
        reading.open("topic", 0, 5, asyncio.Event())
        while not hasattr(QuietConsumer, "assigned"):  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.01)
        await reading.close()
    assert [(at.topic, at.partition, at.offset) for at in QuietConsumer.assigned] == [("topic", 0, 5)]
