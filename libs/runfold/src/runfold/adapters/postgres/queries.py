"""The role ``Queries``: what clients ask."""

from __future__ import annotations

from typing import Any

from runfold.adapters.postgres.rows import read_run, read_wait
from runfold.adapters.postgres.snapshots import SnapshotReader
from runfold.ports.store import RunRow, WaitRow


class QueryReader(SnapshotReader):
    """See ``ports.store.Queries``."""

    async def runs(self, *, status: str | None, agent: str | None, limit: int) -> list[RunRow]:
        """See ``ports.store.Queries``."""
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "runs_list", status=status, agent=agent, limit=limit)
        return [read_run(row) for row in rows]

    async def run(self, run_id: str) -> RunRow | None:
        """See ``ports.store.Queries``."""
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "run_by_id", run_id=run_id)
        return read_run(rows[0]) if rows else None

    async def waits(self, run_id: str | None = None) -> list[WaitRow]:
        """See ``ports.store.Queries``."""
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "waits_list", run_id=run_id)
        return [read_wait(row) for row in rows]

    async def describe(self) -> dict[str, Any]:
        """See ``ports.store.Queries``."""
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "migrations_applied")
            number = connection.info.server_version
        return {
            "server": f"PostgreSQL {number // 10000}.{number % 10000}",
            "schema": self._database.schema,
            "migrations": [row["name"] for row in rows],
        }
