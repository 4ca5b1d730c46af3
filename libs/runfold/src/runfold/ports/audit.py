"""Everything that is stored of one partition, for comparing it with the log and for throwing it away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runfold.core.stored import SnapshotRow
from runfold.ports.store import OpenCallRow, PartitionRow, RunRow, StoredRun, WaitRow


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows of one partition at one moment.

    Attributes:
        snapshots: By run and seq, without their states' bytes.
        waits: By wait_id; ``calls``: by run and step.
    """

    row: PartitionRow | None = None
    runs: Mapping[str, RunRow] = field(default_factory=dict)
    snapshots: Mapping[str, Mapping[int, SnapshotRow]] = field(default_factory=dict)
    waits: Mapping[str, WaitRow] = field(default_factory=dict)
    calls: Mapping[tuple[str, int], OpenCallRow] = field(default_factory=dict)


class AuditStore(Protocol):
    """What ``runfold verify`` and ``runfold rebuild`` ask of Postgres."""

    async def tables(self, partition: int) -> Tables:
        """Read the partition's tables in one repeatable-read transaction.

        Raises:
            StoreUnavailable: Try again.
        """
        ...

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """As in ``Snapshots``."""
        ...

    async def runs_from(self, partition: int, offset: int, limit: int) -> list[str]:
        """As in ``Snapshots``."""
        ...

    async def set_row(self, row: PartitionRow) -> PartitionRow:
        """Write the partition's row alone; its ``version`` is the one expected (0: there is none). Gives it as stored.

        Raises:
            StaleCompactor: The stored version is another one.
        """
        ...

    async def drop(self, row: PartitionRow) -> PartitionRow:
        """Write the partition's row as ``set_row`` does, and remove everything else of the partition with it.

        Runs, snapshots, chunks, waits, open calls, leases; never the effects table, which no log can bring back.

        Raises:
            StaleCompactor: The stored version is another one: nothing was removed.
        """
        ...
