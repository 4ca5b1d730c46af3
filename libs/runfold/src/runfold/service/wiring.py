"""What the services' wiring shares: waiting for the installation, and opening what is closed with the service."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from runfold.adapters.kafka.config import KafkaConfig, MemberSettings
from runfold.adapters.kafka.drains import KafkaDrains
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaUnavailable
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.kafka.sessions import session_s
from runfold.adapters.postgres import PostgresStore, StoreMisconfigured
from runfold.adapters.postgres.effects import PostgresEffects
from runfold.adapters.postgres.effects import open_effects as open_effects_table
from runfold.ports.blobs import Blobs, BlobsUnavailable
from runfold.ports.effects import EffectsUnavailable
from runfold.ports.store import StoreUnavailable
from runfold.service.errors import InstallationError
from runfold.service.main import Kit
from runfold.service.reach import blobs_of, probe_blobs, reach_kafka, reach_postgres
from runfold.service.settings import ServiceSettings

T = TypeVar("T")
NEEDS = ("kafka", "postgres", "blobs")


def whoami() -> str:
    """Name this process for people: host name and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Do work beside the block, which ends once both are done; one that fails ends the other, and is raised alone.

    Where both fail, the work's failure is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task(work)
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__


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


async def open_effects(settings: ServiceSettings, dsn: str | None, kit: Kit, stack: AsyncExitStack) -> PostgresEffects:
    """Wait until the database of the effects table answers, and open the table.

    Args:
        settings: Schema, and Runfold's own database.
        dsn: The app's own database, where the table is made if it is missing; None: Runfold's, where setup has made it.
        kit: The service.
        stack: Closes it.

    Raises:
        InstallationError: The address cannot be used, or the table cannot be made.
    """
    address, schema = dsn or settings.postgres_dsn.get_secret_value(), settings.postgres_schema
    variable = "RUNFOLD_POSTGRES_DSN" if dsn is None else "App(effects_dsn=...)"
    try:
        table = await kit.reach(
            "effects",
            lambda: open_effects_table(address, schema, make=dsn is not None),
            EffectsUnavailable,
            variable=variable,
        )
    except StoreMisconfigured as error:
        raise InstallationError(f"{variable}: {error}") from error
    stack.push_async_callback(table.close_pools)
    return table


async def open_blobs(settings: ServiceSettings, kit: Kit, stack: AsyncExitStack) -> Blobs:
    """Open the object store, and wait until it can be written and read.

    Behind the import of an app, which may put boto3's variables into the environment.

    Raises:
        InstallationError: RUNFOLD_BLOB_URL cannot be used.
    """
    blobs = blobs_of(settings)
    stack.push_async_callback(blobs.close)
    await kit.reach("blobs", lambda: probe_blobs(blobs), BlobsUnavailable, variable="RUNFOLD_BLOB_URL")
    return blobs


async def find_session(config: KafkaConfig, group: str, times: MemberSettings, kit: Kit) -> float:
    """Find out how long the group waits for a silent member, in seconds.

    Raises:
        InstallationError: It has to be said, and was not, or was said wrongly.
    """

    async def ask() -> float:
        with _settings_refused():
            return await session_s(config, group, times)

    return await kit.reach("kafka", ask, KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")


async def start_log(log: KafkaLog, kit: Kit, stack: AsyncExitStack) -> None:
    """Connect the log's producer before it is needed.

    Raises:
        InstallationError: A setting is refused.
    """
    stack.push_async_callback(log.close)
    with _settings_refused():
        await kit.reach("kafka", log.start, KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")


async def start_publisher(publisher: KafkaPublisher, topic: str, kit: Kit, stack: AsyncExitStack) -> None:
    """Connect a publisher before it is needed.

    Raises:
        InstallationError: A setting is refused.
    """
    stack.push_async_callback(publisher.close)
    with _settings_refused():
        await kit.reach("kafka", lambda: publisher.start(topic), KafkaUnavailable, variable="RUNFOLD_KAFKA_BOOTSTRAP")


def start_drains(drains: KafkaDrains, stack: AsyncExitStack) -> None:
    """Begin to connect what marks are asked with.

    Raises:
        InstallationError: A setting is refused.
    """
    stack.push_async_callback(drains.close)
    with _settings_refused():
        drains.start()


@contextmanager
def _settings_refused() -> Iterator[None]:
    """What librdkafka refuses is the operator's to mend."""
    try:
        yield
    except KafkaConfigError as error:
        raise InstallationError(str(error)) from error
