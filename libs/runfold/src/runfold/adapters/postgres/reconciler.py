"""The role ``ReconcilerStore``: short transactions that lease rows in a table of its own."""

from __future__ import annotations

from runfold.adapters.postgres.rows import read_call
from runfold.adapters.postgres.snapshots import SnapshotReader
from runfold.ports.store import DueCall, OpenCallRow


class ReconcilerLeases(SnapshotReader):
    """See ``ports.store.ReconcilerStore``."""

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """See ``ports.store.ReconcilerStore``."""
        async with self._database.connection() as connection, connection.transaction():
            await self._database.execute(connection, "leases_orphaned")
            rows = await self._database.fetch(
                connection, "lease_due", holder=holder, limit=limit, grace_s=float(grace_s), lease_s=float(lease_s)
            )
        return [
            DueCall(read_call(row), row["owner_gone"], row["overdue"], row["tries"], float(row["settles_in_s"]))
            for row in rows
        ]

    async def postpone(self, call: OpenCallRow, holder: str, delay_s: float, tries: int) -> None:
        """See ``ports.store.ReconcilerStore``."""
        async with self._database.connection() as connection:
            await self._database.execute(
                connection,
                "lease_postpone",
                run_id=call.run_id,
                step=call.step,
                attempt=call.attempt,
                holder=holder,
                delay_s=float(delay_s),
                tries=tries,
            )
