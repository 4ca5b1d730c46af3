"""The store under test: the in-memory one, and the one on a real Postgres."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from runfold.adapters.memory.clock import LoopClock
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.adapters.postgres import PostgresStore, migrate, open_store

AnyStore = MemoryStore | PostgresStore


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[AnyStore]:
    """Give an empty store."""
    if request.param == "memory":
        yield MemoryStore(MemoryDatabase(LoopClock()))
        return
    dsn: Any = request.getfixturevalue("postgres_dsn")
    schema: Any = request.getfixturevalue("postgres_schema")
    await migrate(dsn, schema)
    opened = await open_store(dsn, schema)
    yield opened
    await opened.close()
