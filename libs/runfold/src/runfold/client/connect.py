"""A client on the real Kafka, Postgres and object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.client.client import Client
from runfold.client.dead_kafka import KafkaDeadLetters
from runfold.client.postgres import LazyQueries
from runfold.ports.publisher import Published, PublishFailed
from runfold.ports.topics import Topics
from runfold.service.reach import blobs_of, kafka_config
from runfold.service.settings import ClientSettings, load

_ACK_S = 30.0


@asynccontextmanager
async def connected(settings: ClientSettings | None = None) -> AsyncIterator[Client]:
    """Make a client from settings, by default those of the environment; everything is closed with the block."""
    settings = settings or load(ClientSettings)
    config = kafka_config(settings)
    topics = Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        log = KafkaLog(config, topics)
        stack.push_async_callback(log.close)
        publisher = PromptPublisher(config)
        stack.push_async_callback(publisher.close)
        queries = LazyQueries(settings)
        stack.push_async_callback(queries.close)
        blobs = blobs_of(settings)
        stack.push_async_callback(blobs.close)
        yield Client(
            log=log,
            publisher=publisher,
            queries=queries,
            blobs=blobs,
            dead=KafkaDeadLetters(config, topics.dead, settings.partitions),
            topics=topics,
            partitions=settings.partitions,
        )


class PromptPublisher:
    """A ``Publisher`` for people: a producer waits for Kafka without limit, a person does not."""

    def __init__(self, config: KafkaConfig) -> None:
        self._inner = KafkaPublisher(config)
        self._started = False

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Produce one record.

        Raises:
            KafkaUnavailable: Nothing was produced: no broker answers.
            PublishFailed: See there; also when no acknowledgement has come in time.
        """
        if not self._started:
            await self._inner.start(topic)
            self._started = True
        try:
            async with asyncio.timeout(_ACK_S):
                return await self._inner.publish(topic, key, value, headers=headers, partition=partition)
        except TimeoutError:
            message = f"{topic}: no acknowledgement within {_ACK_S:g} s; the record may still arrive"
            raise PublishFailed(message) from None

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()
