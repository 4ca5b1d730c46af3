"""Postgres, opened when it is first asked: inputs can be sent while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from runfold.adapters.postgres.store import PostgresStore
from runfold.ports.store import PartitionRow, RunRow, StoredRun, WaitRow


class LazyQueries:
    """The port ``Queries``, on a store that the first question opens; a failed opening is tried again by the next.

    Args:
        opening: Opens the store; what it raises is raised by every method.
    """

    def __init__(self, opening: Callable[[], Awaitable[PostgresStore]]) -> None:
        self._open = opening
        self._opening = asyncio.Lock()
        self._opened: PostgresStore | None = None

    async def close(self) -> None:
        """Close what was opened."""
        if self._opened is not None:
            await self._opened.close()

    async def runs(self, *, status: str | None, agent: str | None, limit: int) -> list[RunRow]:
        """See ``ports.store.Queries``."""
        return await (await self._store()).runs(status=status, agent=agent, limit=limit)

    async def run(self, run_id: str) -> RunRow | None:
        """See ``ports.store.Queries``."""
        return await (await self._store()).run(run_id)

    async def waits(self, run_id: str | None = None) -> list[WaitRow]:
        """See ``ports.store.Queries``."""
        return await (await self._store()).waits(run_id)

    async def partition(self, partition: int) -> PartitionRow | None:
        """See ``ports.store.Queries``."""
        return await (await self._store()).partition(partition)

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """See ``ports.store.Queries``."""
        return await (await self._store()).load_runs(run_ids)

    async def describe(self) -> dict[str, Any]:
        """See ``ports.store.Queries``."""
        return await (await self._store()).describe()

    async def _store(self) -> PostgresStore:
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened
