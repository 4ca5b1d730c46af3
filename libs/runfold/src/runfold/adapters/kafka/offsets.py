"""What exists of a partition, and which cluster and topic it is: asked of the brokers by an admin client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without `as`

from runfold.adapters.kafka.clients import Heard, make_admin
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable, kafka_error
from runfold.ports.log import LogBounds, LogIdentity

T = TypeVar("T")

_AGAIN_S: Final = 0.1
_LEADER_S: Final = 3.0
_PASSING: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own code
    KafkaError._TIMED_OUT,  # noqa: SLF001 - the same
)
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

        async def ask(client: AdminClient) -> LogBounds:
            await asyncio.to_thread(_learn_leader, client, place)
            futures = [
                client.list_offsets({place: spec}, request_timeout=self._timeout)[place]
                for spec in (_EARLIEST, _LATEST)
            ]
            begin, end = [(await asyncio.wrap_future(future)).offset for future in futures]
            if min(begin, end) < 0:  # the client's answer, without an error, when the broker dies during the question
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"no offset in the answer: {begin}, {end}"))  # noqa: SLF001 - librdkafka's own code
            # A record that goes between the two questions is no reason to say that the end is before the beginning.
            return LogBounds(begin, max(begin, end))

        return await self._insist(ask, f"the offsets of {topic}[{partition}]")

    async def identity(self, topic: str) -> LogIdentity:
        """Say which cluster and which topic this is.

        Raises:
            KafkaUnavailable: No answer in time, or there is no such topic.
        """

        async def ask(client: AdminClient) -> LogIdentity:
            described = client.describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
            topic_id = (await asyncio.wrap_future(described[topic])).topic_id
            cluster_id = await asyncio.to_thread(client.cluster_id, self._timeout)
            return LogIdentity(cluster_id, topic if topic_id is None else str(topic_id))

        return await self._insist(ask, f"the id of {topic}")

    async def _insist(self, ask: Callable[[AdminClient], Awaitable[T]], what: str) -> T:
        """Ask again while a leader is being elected, or a new topic becomes known: the client does not do it itself.

        Nor does it look for the leader again: after a broker has come back it would ask in the old leader epoch for
        ever. So a client that failed is not used again; who is still waiting for its answer holds it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            client = self._client()
            try:
                return await ask(client)
            except KafkaException as error:
                reason = kafka_error(error)
                if self._admin is client:
                    self._admin = None
                if reason.code() not in _PASSING or loop.time() > deadline:
                    message = f"Kafka did not tell {what}: {reason.str()} (last heard: {self._heard})"
                    raise KafkaUnavailable(message) from error
            await asyncio.sleep(_AGAIN_S)

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = make_admin(self._config.admin(), self._heard)
        return self._admin


def _learn_leader(client: AdminClient, place: TopicPartition) -> None:
    """Let a client know who leads a partition, before it is asked for its offsets (blocks).

    A client that does not know it begins to look for it in the thread that asks, while its own thread may end that very
    search: what both work on is freed then, and the process dies of SIGSEGV (``query_leaders_async`` in librdkafka's
    rdkafka_partition.c, 2.15 and 2.16; 1 in 10 runs of 8,600 questions to new clients, right after their start).

    Raises:
        KafkaException: There is none, or no answer.
    """
    topic = client.list_topics(place.topic, timeout=_LEADER_S).topics[place.topic]
    if topic.error is not None:
        raise KafkaException(topic.error)
    partition = topic.partitions.get(place.partition)
    if partition is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    if partition.leader < 0:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
