"""What exists of a partition, and which cluster and topic it is: asked of the brokers by an admin client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without `as`

from runfold.adapters.kafka.clients import Heard, make_admin
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable, kafka_error
from runfold.ports.log import LogBounds, LogIdentity

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client's
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's


class Offsets:
    """Asks for offsets and ids. Safe to share: the client's futures resolve in a thread of its own.

    Args:
        config: How to reach Kafka.
        timeout: Seconds a question may take.
    """

    def __init__(self, config: KafkaConfig, timeout: float = 10.0) -> None:
        self._config = config
        self._timeout = timeout
        self._heard = Heard()
        self._admin: AdminClient | None = None

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """Give what exists now; ``end`` covers everything acknowledged before the call.

        Raises:
            KafkaUnavailable: No answer in time, or there is no such partition.
        """
        place = TopicPartition(topic, partition)
        with self._asking(f"the offsets of {topic}[{partition}]"):
            futures = [
                self._client().list_offsets({place: spec}, request_timeout=self._timeout)[place]
                for spec in (_EARLIEST, _LATEST)
            ]
            begin, end = [(await asyncio.wrap_future(future)).offset for future in futures]
        # A record between the two questions is no reason to say that the partition ends before it begins.
        return LogBounds(begin, max(begin, end))

    async def identity(self, topic: str) -> LogIdentity:
        """Say which cluster and which topic this is.

        Raises:
            KafkaUnavailable: No answer in time, or there is no such topic.
        """
        with self._asking(f"the id of {topic}"):
            described = self._client().describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
            topic_id = (await asyncio.wrap_future(described[topic])).topic_id
            cluster_id = await asyncio.to_thread(self._client().cluster_id, self._timeout)
        return LogIdentity(cluster_id, topic if topic_id is None else str(topic_id))

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = make_admin(self._config.admin(), self._heard)
        return self._admin

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            message = f"Kafka did not tell {what}: {kafka_error(error).str()} (last heard: {self._heard})"
            raise KafkaUnavailable(message) from error
