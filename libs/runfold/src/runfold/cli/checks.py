"""What ``runfold check`` looks at, and what ``runfold setup`` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from runfold.adapters.kafka.admin import check_topics, setup_topics
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaUnavailable
from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.postgres import StoreMisconfigured, migrate
from runfold.cli.explain import address, one_line, what_failed
from runfold.cli.finding import Finding, Status
from runfold.cli.running import say
from runfold.cli.service_findings import of_services
from runfold.cli.words import counted
from runfold.ports.blobs import BlobMissing, BlobsUnavailable
from runfold.ports.log import LogUnavailable
from runfold.ports.store import StoreUnavailable
from runfold.ports.topics import Topics
from runfold.runtime.keeping_up import PATIENCE_S, keeping_up
from runfold.service.errors import InstallationError
from runfold.service.reach import blobs_of, kafka_config, knock_at_kafka, probe_blobs, reach_postgres
from runfold.service.settings import ClientSettings, SettingsError

_SET_UP = (
    "run `runfold setup`, as a user who may. If there were tables that are lost, and the app has TRANSACTIONAL tools "
    "or dedupe, stop the executors first: see docs/disaster.md"
)

_REFUSED_STATUSES = frozenset({401, 403})
# S3 says these with 400.
_REFUSED_CODES = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})
# With 403, and not of the key.
_WRONG_TIME = "RequestTimeTooSkewed"
_KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what else boto3 reads) to a key that may read and write there"
)


def wrong_settings(error: SettingsError) -> list[Finding]:
    """Give a finding for each problem of the settings."""
    return [
        Finding(problem.variable, "wrong", problem.message, "unset it" if problem.is_unknown else "set it")
        for problem in error.problems
    ]


async def findings(settings: ClientSettings) -> AsyncIterator[Finding]:
    """Look at everything that the settings name."""
    yield Finding("settings", "ok", f"prefix {settings.topic_prefix}, schema {settings.postgres_schema}")
    servers = [finding for look in (_kafka, _postgres) async for finding in look(settings)]
    for finding in servers:
        yield finding
    if all(finding.status == "ok" for finding in servers):
        for finding in await _services(settings):
            yield finding
    async for finding in _blobs(settings):
        yield finding
    for finding in await asyncio.to_thread(_app, settings):
        yield finding


async def set_up(settings: ClientSettings) -> AsyncIterator[str]:
    """Make the topics and the tables; gives a line for each thing that was done.

    Raises:
        KafkaUnavailable, StoreUnavailable: Try again.
        TopicProblem, StoreMisconfigured, InstallationError: What would lose data or cannot be done, and the mend.
    """
    await knock_at_kafka(settings)
    topics = Topics(settings.topic_prefix)
    made = await setup_topics(kafka_config(settings), topics, settings.partitions, settings.replication_factor)
    for topic in made:
        yield f"topic {topic}: made, {settings.partitions} partitions"
    if not made:
        yield f"topics {topics.prefix}*: as they should be"
    applied = await migrate(settings.postgres_dsn.get_secret_value(), settings.postgres_schema)
    for migration in applied:
        yield f"schema {settings.postgres_schema}: {migration} applied"
    if not applied:
        yield f"schema {settings.postgres_schema}: up to date"


async def _kafka(settings: ClientSettings) -> AsyncIterator[Finding]:
    mend = "start Kafka, or set RUNFOLD_KAFKA_BOOTSTRAP (and RUNFOLD_KAFKA_CONFIG for TLS and SASL)"
    try:
        config = kafka_config(settings)
        await knock_at_kafka(settings)
        problems = await check_topics(config, Topics(settings.topic_prefix), settings.partitions)
    except (InstallationError, KafkaConfigError) as error:
        yield Finding("kafka", "wrong", one_line(error), "mend the file that RUNFOLD_KAFKA_CONFIG names")
    except KafkaUnavailable as error:
        yield Finding("kafka", "unreachable", one_line(error), mend)
    else:
        yield Finding("kafka", "ok", settings.kafka_bootstrap)
        for problem in problems:
            # As the adapter words it: "what is wrong; the mend", or "topic does not exist: the mend".
            found, semicolon, how = problem.rpartition("; ")
            if not semicolon:
                found, _, how = problem.partition(": ")
            yield Finding("topics", "wrong", found, how or None)
        if not problems:
            yield Finding("topics", "ok", f"6 with {settings.partitions} partitions each")


async def _postgres(settings: ClientSettings) -> AsyncIterator[Finding]:
    where = address(settings, "postgres_dsn")
    try:
        store = await reach_postgres(settings, max_size=1, timeout_s=10.0)
    except StoreUnavailable as error:
        mend = "start Postgres, or set RUNFOLD_POSTGRES_DSN"
        yield Finding("postgres", "unreachable", f"{where}: {what_failed('Postgres', error)}", mend)
        return
    except InstallationError as error:
        yield Finding("tables", "wrong", one_line(error), _SET_UP)
        return
    try:
        about = await store.describe()
    finally:
        await store.close()
    yield Finding("postgres", "ok", f"{about['server']} at {where}")
    yield Finding("tables", "ok", f"schema {about['schema']}, {counted(len(about['migrations']), 'migration')}")


async def _services(settings: ClientSettings) -> list[Finding]:
    """Look at what waits for the services; Kafka and Postgres answered a moment ago."""
    config, topics = kafka_config(settings), Topics(settings.topic_prefix)
    try:
        async with AsyncExitStack() as stack:
            store = await reach_postgres(settings, max_size=4, timeout_s=10.0)
            stack.push_async_callback(store.close)
            log, inputs = KafkaLog(config, topics), KafkaInputs(config, topics)
            for opened in (log, inputs):
                stack.push_async_callback(opened.close)
            return of_services(await keeping_up(log, inputs, store, settings.partitions, _told_sleep()))
    except (LogUnavailable, StoreUnavailable) as error:
        return [Finding("services", "unreachable", one_line(error), "run `runfold check` again")]
    except (InstallationError, StoreMisconfigured) as error:
        return [Finding("tables", "wrong", one_line(error), _SET_UP)]


def _told_sleep() -> Callable[[float], Awaitable[None]]:
    """Give a sleep that says, the first time, what is waited for."""
    was_told = False

    async def sleep(seconds: float) -> None:
        nonlocal was_told
        if not was_told:
            was_told = True
            say(f"something waits for the services: looking for up to {PATIENCE_S:g} s whether it moves")
        await asyncio.sleep(seconds)

    return sleep


async def _blobs(settings: ClientSettings) -> AsyncIterator[Finding]:
    mend = "start the object store, or set RUNFOLD_BLOB_URL (and boto3's variables for s3)"
    try:
        blobs = blobs_of(settings)
    except InstallationError as error:
        yield Finding("object store", "wrong", one_line(error), "set RUNFOLD_BLOB_URL")
        return
    try:
        await probe_blobs(blobs)
    except BlobsUnavailable as error:
        refused = _mend_of_refusal(error)
        status: Status = "unreachable" if refused is None else "wrong"
        yield Finding("object store", status, one_line(error), refused or mend)
    except BlobMissing as error:
        yield Finding("object store", "wrong", one_line(error), "the store does not give back what was written")
    else:
        yield Finding("object store", "ok", f"{settings.blob_url} can be written and read")
    finally:
        await blobs.close()


def _mend_of_refusal(error: BlobsUnavailable) -> str | None:
    """What mends it that a store has answered and does not take this key or this time, or that there is no key."""
    from botocore.exceptions import ClientError, NoCredentialsError  # noqa: PLC0415 - 0.2 s, and only wanted here

    cause = error.__cause__
    if isinstance(cause, NoCredentialsError):
        return _KEYS
    if not isinstance(cause, ClientError):
        return None
    code = cause.response.get("Error", {}).get("Code")
    if code == _WRONG_TIME:
        return "set this machine's clock, or the store's: they differ by more than the store allows"
    status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return _KEYS if code in _REFUSED_CODES or status in _REFUSED_STATUSES else None


def _app(settings: ClientSettings) -> list[Finding]:
    if settings.app is None:
        return [Finding("app", "note", "RUNFOLD_APP is not set", "set it for the step executor and the reconciler")]
    from runfold.sdk.frames import where_raised  # noqa: PLC0415 - only wanted here

    try:
        from runfold.sdk.loading import load_app  # noqa: PLC0415 - pydantic-ai may not be installed
        from runfold.sdk.remarks import remarks  # noqa: PLC0415 - the same
        from runfold.sdk.revision import find_revision  # noqa: PLC0415 - the same

        app = load_app(settings.app)
        revision = find_revision(app.modules, settings.revision)
        notes = [Finding(what, "note", found, mend) for what, found, mend in remarks(app)]
    except Exception as error:  # noqa: BLE001 - the author's module may raise anything
        found, mend = f"{type(error).__name__}: {one_line(error)}", "mend the app, or set RUNFOLD_APP"
        return [Finding("app", "wrong", f"{found}{where_raised(error)}", mend)]
    return [Finding("app", "ok", f"{app!r} at revision {revision}"), *notes]
