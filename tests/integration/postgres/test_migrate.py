"""``migrate`` and ``open_store`` on a real Postgres: what they do, and what they say when they cannot."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from runfold.adapters.postgres import StoreMisconfigured, migrate, open_store
from runfold.adapters.postgres.statements import load_migrations
from runfold.ports.store import StoreUnavailable

pytestmark = pytest.mark.integration

FIRST = "0001_tables"
KNOWN = [migration.name for migration in load_migrations()]


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    """Give a connection in autocommit mode."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


def _change(database: psycopg.Connection, schema: str, statement: str) -> None:
    database.execute(sql.SQL(statement).format(sql.Identifier(schema)))  # a literal of this file


async def test_the_second_time_does_nothing(postgres_dsn: str, postgres_schema: str) -> None:
    assert (await migrate(postgres_dsn, postgres_schema))[0] == FIRST
    assert await migrate(postgres_dsn, postgres_schema) == []


async def test_at_once_each_migration_is_applied_by_one(postgres_dsn: str, postgres_schema: str) -> None:
    outcomes = await asyncio.gather(*(migrate(postgres_dsn, postgres_schema) for _ in range(5)))
    assert sorted(outcomes) == [[], [], [], [], KNOWN]


async def test_a_schema_that_exists_already_is_used(
    database: psycopg.Connection, postgres_dsn: str, postgres_schema: str
) -> None:
    _change(database, postgres_schema, "create schema {}")
    assert await migrate(postgres_dsn, postgres_schema) == KNOWN


async def test_a_schema_with_a_hostile_name_is_only_a_name(postgres_dsn: str) -> None:
    with pytest.raises(StoreMisconfigured, match="is not a name"):
        await migrate(postgres_dsn, 'x"; drop schema public; --')


async def test_a_newer_database_is_refused(
    database: psycopg.Connection, postgres_dsn: str, postgres_schema: str
) -> None:
    await migrate(postgres_dsn, postgres_schema)
    _change(database, postgres_schema, "insert into {}.migrations values (9999, '9999_future', 'x')")
    with pytest.raises(StoreMisconfigured, match=r"newer than this code.*9999_future"):
        await migrate(postgres_dsn, postgres_schema)
    store = await open_store(postgres_dsn, postgres_schema)  # a roll-out in progress: the services go on
    await store.close()


async def test_an_edited_migration_is_refused(
    database: psycopg.Connection, postgres_dsn: str, postgres_schema: str
) -> None:
    await migrate(postgres_dsn, postgres_schema)
    _change(database, postgres_schema, "update {}.migrations set checksum = 'x'")
    with pytest.raises(StoreMisconfigured, match="another form"):
        await migrate(postgres_dsn, postgres_schema)


async def test_missing_tables_are_said_to_need_setup(
    database: psycopg.Connection, postgres_dsn: str, postgres_schema: str
) -> None:
    with pytest.raises(StoreMisconfigured, match=r"^schema '\w+': tables are missing: run `runfold setup`$"):
        await open_store(postgres_dsn, postgres_schema)
    await migrate(postgres_dsn, postgres_schema)
    _change(database, postgres_schema, "delete from {}.migrations")
    with pytest.raises(StoreMisconfigured, match=f"lacks {', '.join(KNOWN)}: run `runfold setup`"):
        await open_store(postgres_dsn, postgres_schema)


async def test_a_bad_dsn_is_named_and_its_password_is_not_shown() -> None:
    with pytest.raises(StoreMisconfigured, match="RUNFOLD_POSTGRES_DSN is not a libpq URL") as caught:
        await open_store("postgresql://u:s3cret@h/d?nonsense=1", "runfold")
    assert "s3cret" not in str(caught.value)


async def test_a_server_that_is_away_is_unavailable(postgres_schema: str) -> None:
    nobody = "postgresql://u@127.0.0.1:1/d"
    with pytest.raises(StoreUnavailable):
        await open_store(nobody, postgres_schema, timeout_s=1.0)
    with pytest.raises(StoreUnavailable):
        await migrate(nobody, postgres_schema)


async def test_the_store_says_what_it_is(postgres_dsn: str, postgres_schema: str) -> None:
    await migrate(postgres_dsn, postgres_schema)
    store = await open_store(postgres_dsn, postgres_schema)
    try:
        described = await store.describe()
    finally:
        await store.close()
    assert described["schema"] == postgres_schema
    assert described["migrations"][0] == FIRST
    assert described["server"].startswith("PostgreSQL ")
