"""Servers for the integration tests, and names of their own for every test.

The servers start when the first test asks for one: an address in the environment, else Docker, else local processes
(see tools/devstack). Where none of these can be had the test is skipped, or fails under REQUIRE_SERVICES=1.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from xdist.scheduler import LoadScopeScheduling

from devstack import NoServersError, Stack

_ROOT = Path(__file__).resolve().parents[1]


# Where the tests are that need servers: they share one worker of xdist, and its servers.
_WITH_SERVERS = (
    "tests/acceptance/",
    "tests/chaos/",
    "tests/contract/",
    "tests/integration/",
    "tests/cases/test_long_runs.py",
    "tests/cases/test_slow_tools.py",
    "tests/docs/test_recovery_page.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what needs servers begin first, since it takes longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(_WITH_SERVERS))
    for item in items:
        if item.get_closest_marker("integration") is not None and not item.nodeid.startswith(_WITH_SERVERS):
            raise pytest.UsageError(f"{item.nodeid} needs servers: name its place in tests/conftest.py")


class _ByServers(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no annotations
    """One worker for what needs servers, the others a file at a time: ``xdist_group`` is not for pytest 9.2 yet."""

    def _split_scope(self, nodeid: str) -> str:
        return "servers" if nodeid.startswith(_WITH_SERVERS) else nodeid.split("::", maxsplit=1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Say which worker runs what."""
    return _ByServers(config, log)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Kafka, Postgres and S3, shared by all tests of the session: a test that kills one starts it again."""
    try:
        servers = Stack.start(_ROOT)
    except NoServersError as error:
        if os.environ.get("REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(str(error))
    with servers:
        yield servers


@pytest.fixture(scope="session")
def kafka_bootstrap(stack: Stack) -> str:
    """Return the broker's address."""
    return stack.environment()["RUNFOLD_KAFKA_BOOTSTRAP"]


@pytest.fixture(scope="session")
def postgres_dsn(stack: Stack) -> str:
    """Return the libpq URL of the database."""
    return stack.environment()["RUNFOLD_POSTGRES_DSN"]


@pytest.fixture(scope="session")
def s3_env(stack: Stack) -> dict[str, str]:
    """Return the variables that boto3 reads, and RUNFOLD_BLOB_URL, whose bucket exists."""
    return {key: value for key, value in stack.environment().items() if key.startswith("AWS_") or "BLOB" in key}


@pytest.fixture
def topic_prefix() -> str:
    """Return a prefix for the topics and groups of one test, so that tests cannot see each other's records."""
    return f"test-{uuid.uuid4().hex[:12]}."


@pytest.fixture
def postgres_schema(postgres_dsn: str) -> Iterator[str]:
    """Name a schema for the tables of one test: not created here, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))
