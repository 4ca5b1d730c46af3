"""What the services' wiring shares: waiting for the installation, and opening what is closed with the service."""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack

from runfold.adapters.kafka.errors import KafkaUnavailable
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.postgres import PostgresStore
from runfold.ports.blobs import Blobs, BlobsUnavailable
from runfold.ports.store import StoreUnavailable
from runfold.service.main import Kit
from runfold.service.reach import blobs_of, probe_blobs, reach_kafka, reach_postgres
from runfold.service.settings import ServiceSettings

NEEDS = ("kafka", "postgres", "blobs")


def whoami() -> str:
    """Name this process for people: host name and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def wait_for_kafka(settings: ServiceSettings, kit: Kit) -> None:
    """Wait until Kafka answers, and prove that the topics are right.

    Raises:
        InstallationError: They are not.
    """
    await kit.reach("kafka", lambda: reach_kafka(settings), KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")


async def open_postgres(settings: ServiceSettings, kit: Kit, stack: AsyncExitStack) -> PostgresStore:
    """Wait until Postgres answers, and open the store.

    Raises:
        InstallationError: The tables are not there.
    """
    store = await kit.reach(
        "postgres", lambda: reach_postgres(settings), StoreUnavailable, variable="RUNFOLD_POSTGRES_DSN"
    )
    stack.push_async_callback(store.close)
    return store


async def open_blobs(settings: ServiceSettings, kit: Kit, stack: AsyncExitStack) -> Blobs:
    """Open the object store, and wait until it can be written and read.

    Raises:
        InstallationError: RUNFOLD_BLOB_URL cannot be used.
    """
    blobs = blobs_of(settings)
    stack.push_async_callback(blobs.close)
    await kit.reach("blobs", lambda: probe_blobs(blobs), BlobsUnavailable, variable="RUNFOLD_BLOB_URL")
    return blobs


async def start_log(log: KafkaLog, kit: Kit, stack: AsyncExitStack) -> None:
    """Connect the log's producer before it is needed."""
    stack.push_async_callback(log.close)
    await kit.reach("kafka", log.start, KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")


async def start_publisher(publisher: KafkaPublisher, topic: str, kit: Kit, stack: AsyncExitStack) -> None:
    """Connect a publisher before it is needed."""
    stack.push_async_callback(publisher.close)
    await kit.reach("kafka", lambda: publisher.start(topic), KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")
