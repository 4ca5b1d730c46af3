"""Drain marks on Kafka: metadata of offsets that are committed for a group of their own, which has no members.

A group's own offsets cannot hold them: who has left a group may not commit for it any more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable
from runfold.adapters.kafka.questions import Questions
from runfold.ports.drains import DrainsUnavailable

_TRY_S: Final = 1.0


class KafkaDrains:
    """See ``ports.drains``.

    Args:
        config: How to reach Kafka.
        group: Whose offsets hold the marks; nobody may be a member of it.
        topic: A topic with as many partitions.
        timeout: Seconds a question may take, and one try more: short, a take-over waits for it.
    """

    def __init__(self, config: KafkaConfig, group: str, topic: str, timeout: float = 2.0) -> None:
        self._group = group
        self._topic = topic
        # A question that finds no coordinator (its topic is being made) is never answered: short tries, many times.
        self._questions = Questions(config, timeout)

    async def mark(self, partitions: Sequence[int]) -> None:
        """Say that these are being drained."""
        await self._write(partitions, uuid.uuid4().hex)

    async def clear(self, partitions: Sequence[int]) -> None:
        """Say that these are not being drained any more."""
        await self._write(partitions, "")

    async def marks(self, partitions: Sequence[int]) -> dict[int, str]:
        """Give the marks that stand on some partitions."""
        wanted = ConsumerGroupTopicPartitions(self._group, [TopicPartition(self._topic, each) for each in partitions])
        found = await self._ask(
            lambda admin: admin.list_consumer_group_offsets([wanted], request_timeout=_TRY_S), "drain marks"
        )
        return {at.partition: at.metadata for at in found.topic_partitions or () if at.metadata and at.error is None}

    async def _write(self, partitions: Sequence[int], mark: str) -> None:
        places = [TopicPartition(self._topic, each, 0, mark) for each in partitions]
        wanted = ConsumerGroupTopicPartitions(self._group, places)
        written = await self._ask(
            lambda admin: admin.alter_consumer_group_offsets([wanted], request_timeout=_TRY_S),
            "that marks were written",
        )
        refused = [f"{at.partition}: {at.error.str()}" for at in written.topic_partitions or () if at.error is not None]
        if refused:
            raise DrainsUnavailable(f"drain marks were refused: {', '.join(refused)}")

    async def _ask(
        self, call: Callable[[AdminClient], dict[str, Future[Any]]], what: str
    ) -> ConsumerGroupTopicPartitions:
        async def ask(client: AdminClient) -> ConsumerGroupTopicPartitions:
            answer: ConsumerGroupTopicPartitions = await asyncio.wrap_future(call(client)[self._group])
            return answer

        try:
            return await self._questions.ask(ask, what)
        except KafkaUnavailable as error:
            raise DrainsUnavailable(str(error)) from error
