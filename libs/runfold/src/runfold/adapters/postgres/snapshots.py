"""The role ``Snapshots``: taking over a partition, loading runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from psycopg.rows import DictRow

from runfold.adapters.postgres.database import Asked, Database
from runfold.adapters.postgres.rows import read_chunk, read_partition, read_snapshot
from runfold.ports.store import ChunkRow, PartitionRow, SnapshotRow, StoredRun, Watermark


class SnapshotReader:
    """See ``ports.store.Snapshots``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """See ``ports.store.Snapshots``."""
        async with self._database.reading() as connection:
            rows = await self._database.fetch(connection, "partition_by_number", partition=partition)
            active = await self._database.fetch(connection, "stored_active", partition=partition)
            known = {row["run_id"] for row in active}
            others = [run_id for run_id in also if run_id not in known]
            if others:
                active += await self._database.fetch(connection, "stored_by_id", run_ids=others)
            run_ids = [row["run_id"] for row in active]
            snapshots = await self._database.fetch(connection, "snapshots_by_run", run_ids=run_ids) if active else []
            chunks = await self._database.fetch(connection, "chunks_by_run", run_ids=run_ids) if active else []
        return (read_partition(rows[0]) if rows else None), list(_stored(active, snapshots, chunks).values())

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """See ``ports.store.Snapshots``."""
        return _stored(*await self._database.fetch_together(*_all_of(run_ids)))

    async def load_runs_as_of(
        self, partition: int, run_ids: Sequence[str]
    ) -> tuple[Watermark | None, dict[str, StoredRun]]:
        """See ``ports.store.Snapshots``."""
        rows, *found = await self._database.fetch_together(_watermark_of(partition), *_all_of(run_ids))
        return _watermark(rows), _stored(*found)

    async def covered_as_of(self, partition: int, seqs: Mapping[str, int]) -> tuple[Watermark | None, set[str]]:
        """See ``ports.store.Snapshots``."""
        asked = ("covered", {"run_ids": list(seqs), "seqs": list(seqs.values())})
        rows, covered = await self._database.fetch_together(_watermark_of(partition), asked)
        return _watermark(rows), {row["run_id"] for row in covered}

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


def _watermark_of(partition: int) -> Asked:
    return ("partition_watermark", {"partition": partition})


def _watermark(rows: list[DictRow]) -> Watermark | None:
    return Watermark(**rows[0]) if rows else None


def _all_of(run_ids: Sequence[str]) -> list[Asked]:
    """The three questions that together tell all that is stored of some runs."""
    arguments = {"run_ids": list(run_ids)}
    return [(name, arguments) for name in ("stored_by_id", "snapshots_by_run", "chunks_by_run")]


def _stored(runs: list[DictRow], snapshots: list[DictRow], chunks: list[DictRow]) -> dict[str, StoredRun]:
    """Give runs with their snapshots and chunks."""
    snapshots_of: dict[str, list[SnapshotRow]] = defaultdict(list)
    for row in snapshots:
        snapshots_of[row["run_id"]].append(read_snapshot(row))
    chunks_of: dict[str, list[ChunkRow]] = defaultdict(list)
    for row in chunks:
        chunks_of[row["run_id"]].append(read_chunk(row))
    return {
        (run_id := row["run_id"]): StoredRun(
            **row, snapshots=tuple(snapshots_of[run_id]), chunks=tuple(chunks_of[run_id])
        )
        for row in runs
    }
