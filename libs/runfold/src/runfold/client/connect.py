"""A client on the real Kafka, Postgres and object store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from runfold.adapters.kafka.dead import KafkaDeadLetters
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.prompt import PromptPublisher
from runfold.adapters.postgres.lazy import LazyQueries
from runfold.client.client import Client
from runfold.ports.topics import Topics
from runfold.service.reach import blobs_of, kafka_config, reach_postgres
from runfold.service.settings import ClientSettings, load

_CONNECTIONS = 2
_ANSWER_S = 15.0


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
        queries = LazyQueries(lambda: reach_postgres(settings, max_size=_CONNECTIONS, timeout_s=_ANSWER_S))
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
