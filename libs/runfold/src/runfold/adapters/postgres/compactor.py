"""The role ``CompactorStore``: one transaction per batch, and most often one statement."""

from __future__ import annotations

from dataclasses import replace

from psycopg.errors import DivisionByZero

from runfold.adapters.postgres.database import Connection, Database
from runfold.adapters.postgres.rows import (
    as_json,
    call_columns,
    chunk_columns,
    partition_json,
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
        try:
            if _is_plain(commit):
                async with self._database.connection() as connection:
                    await self._write_rows(connection, commit)
            else:
                async with self._database.together() as connection:
                    await self._write_rows(connection, commit)
                    await self._write_snapshots(connection, commit)
                    await self._write_waits(connection, commit)
                    await self._rebuild_calls(connection, commit)
        except DivisionByZero as error:
            message = f"partition {commit.row.partition} is no longer at version {commit.row.version}"
            raise StaleCompactor(message) from error
        return replace(commit.row, version=commit.row.version + 1)

    async def _write_rows(self, connection: Connection, commit: Commit) -> None:
        """Write the rows of the partition, of runs and of calls; no key comes twice in what one statement writes."""
        runs: dict[str, RunRow] = {run.run_id: run for run in commit.runs}
        opened = {(call.run_id, call.step): call for call in commit.opened_calls}
        events = {(run_id, seq): (offset, epoch) for run_id, seq, offset, epoch in commit.next_events}
        await self._database.execute(
            connection,
            "commit",
            row=partition_json(commit.row, commit.expected_applied),
            runs=as_json([run_columns(run) for run in runs.values()]),
            opened_calls=as_json([call_columns(call) for call in opened.values()]),
            closed_calls=as_json(
                [{"run_id": key[0], "step": key[1]} for key in commit.closed_calls if key not in opened]
            ),
            next_events=as_json(
                [
                    {"run_id": run_id, "seq": seq, "next_offset": offset, "next_epoch": epoch}
                    for (run_id, seq), (offset, epoch) in events.items()
                ]
            ),
        )

    async def _write_snapshots(self, connection: Connection, commit: Commit) -> None:
        if commit.unreadable:
            await self._database.execute(connection, "snapshots_remove", run_ids=commit.unreadable)
        if commit.chunks:
            starts: dict[str, int] = {}
            for chunk in commit.chunks:
                starts[chunk.run_id] = min(chunk.first_index, starts.get(chunk.run_id, chunk.first_index))
            run_ids, first_indexes = list(starts), list(starts.values())
            await self._database.execute(connection, "chunks_replace", run_ids=run_ids, first_indexes=first_indexes)
        snapshots = {(row.run_id, row.seq): row for row in commit.snapshots}
        if snapshots or commit.chunks:
            await self._database.execute(
                connection,
                "snapshots_insert",
                snapshots=as_json([snapshot_columns(row) for row in snapshots.values()]),
                states=[row.state for row in snapshots.values()],
                chunks=as_json([chunk_columns(row) for row in commit.chunks]),
                data=[row.data for row in commit.chunks],
            )
        if snapshots:
            run_ids = sorted({row.run_id for row in commit.snapshots})
            await self._database.execute(connection, "snapshots_prune", run_ids=run_ids)

    async def _write_waits(self, connection: Connection, commit: Commit) -> None:
        opened = {wait.wait_id: wait for wait in commit.opened_waits}
        closed = [wait_id for _, wait_id in commit.closed_waits if wait_id not in opened]
        if closed or commit.rebuilt:
            names = {"closed": closed, "rebuilt": commit.rebuilt, "opened": list(opened)}
            await self._database.execute(connection, "waits_close", **names)
        if opened:
            waits = as_json([wait_columns(row) for row in opened.values()])
            await self._database.execute(connection, "waits_upsert", waits=waits)

    async def _rebuild_calls(self, connection: Connection, commit: Commit) -> None:
        if commit.rebuilt:
            opened = {(call.run_id, call.step) for call in commit.opened_calls}
            keys = {"run_ids": [run_id for run_id, _ in opened], "steps": [step for _, step in opened]}
            await self._database.execute(connection, "calls_rebuild", rebuilt=commit.rebuilt, **keys)


def _is_plain(commit: Commit) -> bool:
    """Whether a commit writes nothing but the rows of the partition, of runs and of calls."""
    others = (commit.snapshots, commit.chunks, commit.unreadable, commit.opened_waits, commit.closed_waits)
    return not any(others) and not commit.rebuilt
