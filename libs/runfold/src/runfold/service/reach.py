"""Reaching Kafka, Postgres and the object store: an answer within seconds, and what is wrong with its mend.

Clients and pools try again until their own time is over. What starts wants to know at once, and to say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from typing import Protocol, cast

import psycopg

from runfold.adapters.blobs import BlobUrlError, open_blobs
from runfold.adapters.kafka.admin import check_topics
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaUnavailable
from runfold.adapters.postgres import PostgresStore, StoreMisconfigured, open_store
from runfold.adapters.postgres.database import check_dsn, translated
from runfold.ports.blobs import Blobs
from runfold.ports.topics import Topics
from runfold.service.errors import InstallationError
from runfold.service.settings import Installation

_CONNECT_S = 5.0
_PROBE = b"runfold: written to see whether the object store can be written"


def kafka_config(settings: Installation) -> KafkaConfig:
    """Read how to reach Kafka.

    Raises:
        InstallationError: RUNFOLD_KAFKA_CONFIG cannot be used.
    """
    try:
        return KafkaConfig.load(settings.kafka_bootstrap, settings.kafka_config)
    except KafkaConfigError as error:
        raise InstallationError(str(error)) from error


async def knock_at_kafka(settings: Installation) -> None:
    """Open a connection to any bootstrap server, and close it.

    Raises:
        KafkaUnavailable: None of them accepts one.
    """
    refusals = []
    for address in settings.kafka_bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:  # a time-out, a refusal, an unknown host
            refusals.append(f"{address}: {_why(error)}")
        else:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return
    raise KafkaUnavailable("; ".join(refusals))


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_S:g} s"
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno) if known and error.errno else str(error.strerror or error)


async def reach_kafka(settings: Installation) -> None:
    """Prove that Kafka answers and that the topics are what the settings say.

    Raises:
        KafkaUnavailable: No broker answers.
        InstallationError: Topics are missing, or would lose data; each with its mend.
    """
    config = kafka_config(settings)
    await knock_at_kafka(settings)
    try:
        problems = await check_topics(config, Topics(settings.topic_prefix), settings.partitions)
    except KafkaConfigError as error:
        raise InstallationError(str(error)) from error
    if problems:
        raise InstallationError("\n".join(problems))


async def reach_postgres(settings: Installation, *, max_size: int = 4, timeout_s: float = 30.0) -> PostgresStore:
    """Open a store; the caller closes it.

    Args:
        settings: Where it is.
        max_size: Connections at most.
        timeout_s: An operation that takes longer counts as unavailable.

    Raises:
        StoreUnavailable: Postgres cannot be reached.
        InstallationError: The tables are missing or the user may not; the message says how to mend it.
    """
    dsn = settings.postgres_dsn.get_secret_value()
    try:
        with translated(settings.postgres_schema):
            await (await psycopg.AsyncConnection.connect(check_dsn(dsn))).close()
        return await open_store(dsn, settings.postgres_schema, max_size=max_size, timeout_s=timeout_s)
    except StoreMisconfigured as error:
        raise InstallationError(str(error)) from error


class ClosableBlobs(Blobs, Protocol):
    """What ``open_blobs`` gives."""

    async def close(self) -> None:
        """Let go of connections."""
        ...


def blobs_of(settings: Installation) -> ClosableBlobs:
    """Open the object store; nothing is asked of it yet; the caller closes it.

    Raises:
        InstallationError: RUNFOLD_BLOB_URL cannot be used.
    """
    try:
        return cast("ClosableBlobs", open_blobs(settings.blob_url))
    except BlobUrlError as error:
        raise InstallationError(str(error)) from error


async def probe_blobs(blobs: Blobs) -> None:
    """Write a small object and read it back; the same one every time.

    Raises:
        BlobsUnavailable, BlobMissing: It cannot be used; the message says why.
    """
    await blobs.get(await blobs.put(_PROBE))
