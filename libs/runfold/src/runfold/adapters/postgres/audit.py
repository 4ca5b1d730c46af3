"""The role ``AuditStore``: a partition's tables as a whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from runfold.adapters.postgres.database import Connection
from runfold.adapters.postgres.rows import (
    partition_columns,
    read_call,
    read_partition,
    read_run,
    read_snapshot,
    read_wait,
)
from runfold.adapters.postgres.snapshots import SnapshotReader
from runfold.core.stored import SnapshotRow
from runfold.ports.audit import Tables
from runfold.ports.store import PartitionRow, StaleCompactor

# In this order: the later statements tell the partition's rows by those of ``runs``.
_DROPS = ("drop_leases", "drop_calls", "drop_waits", "drop_snapshots", "drop_chunks", "drop_runs")


class Auditor(SnapshotReader):
    """See ``ports.audit.AuditStore``."""

    async def tables(self, partition: int) -> Tables:
        """See ``ports.audit.AuditStore``."""
        names = ("partition_by_number", "audit_runs", "audit_snapshots", "audit_waits", "audit_calls")
        rows = await self._database.fetch_together(*[(name, {"partition": partition}) for name in names])
        read = dict(zip(names, rows, strict=True))
        snapshots: dict[str, dict[int, SnapshotRow]] = defaultdict(dict)
        for snapshot in map(read_snapshot, read["audit_snapshots"]):
            snapshots[snapshot.run_id][snapshot.seq] = snapshot
        partitions = read["partition_by_number"]
        calls = map(read_call, read["audit_calls"])
        return Tables(
            row=read_partition(partitions[0]) if partitions else None,
            runs={run.run_id: run for run in map(read_run, read["audit_runs"])},
            snapshots=snapshots,
            waits={wait.wait_id: wait for wait in map(read_wait, read["audit_waits"])},
            calls={(call.run_id, call.step): call for call in calls},
        )

    async def set_row(self, row: PartitionRow) -> PartitionRow:
        """See ``ports.audit.AuditStore``."""
        async with self._database.connection() as connection, connection.transaction():
            return await self._set_row(connection, row)

    async def drop(self, row: PartitionRow) -> PartitionRow:
        """See ``ports.audit.AuditStore``."""
        async with self._database.connection() as connection, connection.transaction():
            written = await self._set_row(connection, row)
            for name in _DROPS:
                await self._database.execute(connection, name, partition=row.partition)
        return written

    async def _set_row(self, connection: Connection, row: PartitionRow) -> PartitionRow:
        statement = "partition_update" if row.version else "partition_insert"
        columns = {**partition_columns(row), "expected_applied": None}
        if await self._database.execute(connection, statement, **columns) != 1:
            raise StaleCompactor(f"partition {row.partition} is no longer at version {row.version}: run it again")
        return replace(row, version=row.version + 1)
