"""The role ``Snapshots``: taking over a partition, loading runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from psycopg.rows import DictRow

from runfold.adapters.postgres.database import Connection, Database
from runfold.adapters.postgres.rows import read_chunk, read_partition, read_snapshot
from runfold.ports.store import ChunkRow, PartitionRow, SnapshotRow, StoredRun, Watermark

READ_ONLY = "set transaction isolation level repeatable read, read only"


class SnapshotReader:
    """See ``ports.store.Snapshots``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """See ``ports.store.Snapshots``."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(READ_ONLY)
            rows = await self._database.fetch(connection, "partition_by_number", partition=partition)
            active = await self._database.fetch(connection, "stored_active", partition=partition)
            known = {row["run_id"] for row in active}
            others = [run_id for run_id in also if run_id not in known]
            if others:
                active += await self._database.fetch(connection, "stored_by_id", run_ids=others)
            runs = await self._complete(connection, active)
        return (read_partition(rows[0]) if rows else None), runs

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """See ``ports.store.Snapshots``."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(READ_ONLY)
            found = await self._database.fetch(connection, "stored_by_id", run_ids=list(run_ids))
            runs = await self._complete(connection, found)
        return {run.run_id: run for run in runs}

    async def load_runs_as_of(
        self, partition: int, run_ids: Sequence[str]
    ) -> tuple[Watermark | None, dict[str, StoredRun]]:
        """See ``ports.store.Snapshots``."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(READ_ONLY)
            watermark = await self._watermark(connection, partition)
            found = await self._database.fetch(connection, "stored_by_id", run_ids=list(run_ids))
            runs = await self._complete(connection, found)
        return watermark, {run.run_id: run for run in runs}

    async def covered_as_of(self, partition: int, seqs: Mapping[str, int]) -> tuple[Watermark | None, set[str]]:
        """See ``ports.store.Snapshots``."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(READ_ONLY)
            watermark = await self._watermark(connection, partition)
            rows = await self._database.fetch(connection, "covered", run_ids=list(seqs), seqs=list(seqs.values()))
        return watermark, {row["run_id"] for row in rows}

    async def partition(self, partition: int) -> PartitionRow | None:
        """See ``ports.store.Snapshots``."""
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "partition_by_number", partition=partition)
        return read_partition(rows[0]) if rows else None

    async def runs_from(self, partition: int, offset: int, limit: int) -> list[str]:
        """See ``ports.store.Snapshots``."""
        names = {"partition": partition, "offset": offset, "limit": limit}
        async with self._database.connection() as connection:
            rows = await self._database.fetch(connection, "runs_from", **names)
        return [row["run_id"] for row in rows]

    async def _watermark(self, connection: Connection, partition: int) -> Watermark | None:
        rows = await self._database.fetch(connection, "partition_watermark", partition=partition)
        return Watermark(**rows[0]) if rows else None

    async def _complete(self, connection: Connection, runs: list[DictRow]) -> list[StoredRun]:
        """Add snapshots and chunks to rows of ``runs``."""
        if not runs:
            return []
        run_ids = [row["run_id"] for row in runs]
        snapshots: dict[str, list[SnapshotRow]] = defaultdict(list)
        for row in await self._database.fetch(connection, "snapshots_by_run", run_ids=run_ids):
            snapshots[row["run_id"]].append(read_snapshot(row))
        chunks: dict[str, list[ChunkRow]] = defaultdict(list)
        for row in await self._database.fetch(connection, "chunks_by_run", run_ids=run_ids):
            chunks[row["run_id"]].append(read_chunk(row))
        return [
            StoredRun(**row, snapshots=tuple(snapshots[row["run_id"]]), chunks=tuple(chunks[row["run_id"]]))
            for row in runs
        ]
