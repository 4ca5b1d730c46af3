"""The role ``CompactorStore``: one transaction per batch."""

from __future__ import annotations

from dataclasses import replace

from runfold.adapters.postgres.database import Connection, Database
from runfold.adapters.postgres.rows import (
    call_columns,
    chunk_columns,
    partition_columns,
    run_columns,
    snapshot_columns,
    wait_columns,
)
from runfold.adapters.postgres.snapshots import SnapshotReader
from runfold.ports.store import Commit, PartitionRow, RunRow, StaleCompactor


class CompactorWriter(SnapshotReader):
    """See ``ports.store.CompactorStore``."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)

    async def commit(self, commit: Commit) -> PartitionRow:
        """See ``ports.store.CompactorStore``."""
        async with self._database.connection() as connection, connection.transaction():
            await self._raise_version(connection, commit.row, commit.expected_applied)
            # The statements below go out together; the first error undoes all of them.
            async with connection.pipeline():
                await self._write_runs(connection, commit)
                await self._write_snapshots(connection, commit)
                await self._write_waits(connection, commit)
                await self._write_calls(connection, commit)
        return replace(commit.row, version=commit.row.version + 1)

    async def _raise_version(self, connection: Connection, row: PartitionRow, applied: int | None) -> None:
        statement = "partition_update" if row.version else "partition_insert"
        columns = {**partition_columns(row), "expected_applied": applied}
        if await self._database.execute(connection, statement, **columns) != 1:
            raise StaleCompactor(f"partition {row.partition} is no longer at version {row.version}")

    async def _write_runs(self, connection: Connection, commit: Commit) -> None:
        last: dict[str, RunRow] = {run.run_id: run for run in commit.runs}
        await self._database.execute_many(connection, "run_upsert", [run_columns(run) for run in last.values()])

    async def _write_snapshots(self, connection: Connection, commit: Commit) -> None:
        write = self._database.execute_many
        following = [
            {"run_id": run_id, "seq": seq, "next_offset": offset, "next_epoch": epoch}
            for run_id, seq, offset, epoch in commit.next_events
        ]
        await write(connection, "snapshot_next", following)
        if commit.unreadable:
            await self._database.execute(connection, "snapshots_remove", run_ids=commit.unreadable)
        if commit.chunks:
            starts: dict[str, int] = {}
            for chunk in commit.chunks:
                starts[chunk.run_id] = min(chunk.first_index, starts.get(chunk.run_id, chunk.first_index))
            run_ids, first_indexes = list(starts), list(starts.values())
            await self._database.execute(connection, "chunks_replace", run_ids=run_ids, first_indexes=first_indexes)
            await write(connection, "chunk_insert", [chunk_columns(chunk) for chunk in commit.chunks])
        if commit.snapshots:
            await write(connection, "snapshot_upsert", [snapshot_columns(row) for row in commit.snapshots])
            covered = [{"run_id": row.run_id, "seq": row.seq} for row in commit.snapshots]
            await write(connection, "run_covered", covered)
            run_ids = sorted({row.run_id for row in commit.snapshots})
            await self._database.execute(connection, "snapshots_prune", run_ids=run_ids)

    async def _write_waits(self, connection: Connection, commit: Commit) -> None:
        opened = {wait.wait_id: wait for wait in commit.opened_waits}
        closed = [wait_id for _, wait_id in commit.closed_waits if wait_id not in opened]
        if closed or commit.rebuilt:
            names = {"closed": closed, "rebuilt": commit.rebuilt, "opened": list(opened)}
            await self._database.execute(connection, "waits_close", **names)
        await self._database.execute_many(connection, "wait_upsert", [wait_columns(row) for row in opened.values()])

    async def _write_calls(self, connection: Connection, commit: Commit) -> None:
        opened = {(call.run_id, call.step): call for call in commit.opened_calls}
        closed = [key for key in commit.closed_calls if key not in opened]
        if closed:
            keys = {"run_ids": [run_id for run_id, _ in closed], "steps": [step for _, step in closed]}
            await self._database.execute(connection, "calls_close", **keys)
            await self._database.execute(connection, "leases_close", **keys)
        if commit.rebuilt:
            keys = {"run_ids": [run_id for run_id, _ in opened], "steps": [step for _, step in opened]}
            await self._database.execute(connection, "calls_rebuild", rebuilt=commit.rebuilt, **keys)
        await self._database.execute_many(connection, "call_upsert", [call_columns(row) for row in opened.values()])
