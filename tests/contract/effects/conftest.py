"""The effects table under test: the in-memory one, and the one on a real Postgres; two "processes" on each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from runfold.adapters.memory import MemoryEffects, MemoryEffectsDatabase
from runfold.adapters.postgres.effects import open_effects
from runfold.ports.effects import EffectsTable


@dataclass
class Tables:
    """Two processes' clients of one table, and what the author's tools have written for all to see."""

    one: EffectsTable
    other: EffectsTable
    write: Callable[[Any, str], Awaitable[None]]
    written: Callable[[], Awaitable[list[str]]]


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
async def tables(request: pytest.FixtureRequest) -> AsyncIterator[Tables]:
    """Give an empty table."""
    if request.param == "memory":
        database = MemoryEffectsDatabase()

        async def note(connection: Any, what: str) -> None:
            await connection.execute(what)

        async def noted() -> list[str]:
            return [statement for statement, _ in database.committed]

        yield Tables(MemoryEffects(database), MemoryEffects(database), note, noted)
        return
    dsn: str = request.getfixturevalue("postgres_dsn")
    schema: str = request.getfixturevalue("postgres_schema")
    one, other = await open_effects(dsn, schema, make=True), await open_effects(dsn, schema, make=True)

    async def insert(connection: Any, what: str) -> None:
        await connection.execute(f"insert into {schema}.book values (%s)", [what])  # noqa: S608 - the test's own name

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as observer:
        await observer.execute(f"create table {schema}.book (what text)")

        async def rows() -> list[str]:
            found = await (await observer.execute(f"select what from {schema}.book")).fetchall()  # noqa: S608
            return [row[0] for row in found]

        yield Tables(one, other, insert, rows)
    await one.close_pools()
    await other.close_pools()
