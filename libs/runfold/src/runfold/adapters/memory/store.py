"""The store in memory: the twin of ``adapters.postgres``, held to the same contract suite.

One ``MemoryDatabase`` stands for the server; every process of a test has its own ``MemoryStore`` on it. Nothing
awaits inside a call, so every call is a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runfold.core.events import Recovery, WaitReason
from runfold.core.positions import Positions
from runfold.core.state import OPERATIONAL, Status
from runfold.ports.audit import Tables
from runfold.ports.clock import Clock
from runfold.ports.store import (
    ChunkRow,
    Commit,
    DueCall,
    OpenCallRow,
    PartitionRow,
    RunRow,
    SnapshotRow,
    StaleCompactor,
    StoredRun,
    StoreUnavailable,
    WaitRow,
    Watermark,
)

KEPT_SNAPSHOTS = 2
_HELD_BACK = frozenset({WaitReason.VERSION_MISMATCH, WaitReason.UNKNOWN_AGENT})
_RECONCILED = frozenset({Recovery.LOOKUP, Recovery.MANUAL})


@dataclass(slots=True)
class _OpenCall:
    """A row of ``open_calls``; ``inserted_at`` in seconds by the database's clock."""

    row: OpenCallRow
    inserted_at: float


@dataclass(frozen=True, slots=True)
class _Lease:
    """A row of ``leases``: nobody but the holder looks at this attempt before ``until``."""

    holder: str
    until: float
    tries: int
    attempt: int


@dataclass(slots=True)
class MemoryDatabase:
    """The tables. ``clock.elapsed()`` stands for the server's clock; ``available`` False: nothing can be reached."""

    clock: Clock
    available: bool = True
    partitions: dict[int, PartitionRow] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    snapshots: dict[str, dict[int, SnapshotRow]] = field(default_factory=lambda: defaultdict(dict))
    chunks: dict[str, dict[int, ChunkRow]] = field(default_factory=lambda: defaultdict(dict))
    waits: dict[str, WaitRow] = field(default_factory=dict)
    open_calls: dict[tuple[str, int], _OpenCall] = field(default_factory=dict)
    leases: dict[tuple[str, int], _Lease] = field(default_factory=dict)


class MemoryStore:
    """All four Protocols of ``ports.store``, and ``ports.audit``, on one database."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    # --- Snapshots ----------------------------------------------------------------------------------------------

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """See ``ports.store.Snapshots``."""
        database = self._reach()
        row = database.partitions.get(partition)
        held_back = {wait.run_id for wait in database.waits.values() if wait.reason in _HELD_BACK}
        runs = [
            _stored(database, run)
            for run_id, run in sorted(database.runs.items())
            if run_id in also
            or (run.partition == partition and database.snapshots.get(run_id) and _is_active(database, run, held_back))
        ]
        return (None if row is None else _copy(row)), runs

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """See ``ports.store.Snapshots``."""
        database = self._reach()
        return {run_id: _stored(database, database.runs[run_id]) for run_id in run_ids if run_id in database.runs}

    async def covered(self, seqs: Mapping[str, int]) -> set[str]:
        """See ``ports.store.Snapshots``."""
        database = self._reach()
        return {run_id for run_id, seq in seqs.items() if seq in database.snapshots.get(run_id, {})}

    async def load_runs_as_of(
        self, partition: int, run_ids: Sequence[str]
    ) -> tuple[Watermark | None, dict[str, StoredRun]]:
        """See ``ports.store.Snapshots``."""
        # Through the methods that a test may slow down or let fail; the watermark first: an older one is no danger.
        watermark = self._watermark(partition)
        return watermark, await self.load_runs(run_ids)

    async def covered_as_of(self, partition: int, seqs: Mapping[str, int]) -> tuple[Watermark | None, set[str]]:
        """See ``ports.store.Snapshots``."""
        watermark = self._watermark(partition)
        return watermark, await self.covered(seqs)

    async def runs_from(self, partition: int, offset: int, limit: int) -> list[str]:
        """See ``ports.store.Snapshots``."""
        found = [r for r in self._reach().runs.values() if r.partition == partition and r.last_offset >= offset]
        return [run.run_id for run in sorted(found, key=lambda run: run.last_offset)][:limit]

    def _watermark(self, partition: int) -> Watermark | None:
        row = self._reach().partitions.get(partition)
        return None if row is None else row.watermark

    # --- CompactorStore -----------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> PartitionRow:
        """See ``ports.store.CompactorStore``."""
        database = self._reach()
        stored = database.partitions.get(commit.row.partition)
        version = 0 if stored is None else stored.version
        moved = stored is not None and commit.expected_applied not in (None, stored.applied)
        if version != commit.row.version or moved:
            message = f"partition {commit.row.partition} is at version {version}, expected {commit.row.version}"
            raise StaleCompactor(message)
        row = replace(_copy(commit.row), version=version + 1)
        database.partitions[row.partition] = row
        for run in commit.runs:
            known = database.runs.get(run.run_id)
            if known is None or run.seq >= known.seq:
                database.runs[run.run_id] = run
        for run_id in commit.unreadable:
            database.snapshots.pop(run_id, None)
        _write_snapshots(database, commit)
        _write_waits(database, commit)
        _write_calls(database, commit)
        return _copy(row)

    # --- ReconcilerStore ----------------------------------------------------------------------------------------

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """See ``ports.store.ReconcilerStore``."""
        database = self._reach()
        now = database.clock.elapsed()
        held_back = {
            wait.run_id
            for wait in database.waits.values()
            if wait.reason in OPERATIONAL and not _is_running(database, wait.run_id)
        }
        due: list[DueCall] = []
        for key, opened in sorted(database.open_calls.items(), key=lambda item: item[1].inserted_at):
            if len(due) >= limit:
                break
            call = opened.row
            owner = database.partitions.get(call.partition)
            owner_gone = owner is not None and call.epoch < owner.epoch
            overdue = now > opened.inserted_at + call.timeout_ms / 1000 + grace_s
            lease = database.leases.get(key)
            lease = None if lease is None or lease.attempt != call.attempt else lease
            is_due = overdue or (owner_gone and call.recovery is Recovery.LOOKUP)
            if call.run_id in held_back or call.recovery not in _RECONCILED or not is_due:
                continue
            if lease is not None and lease.until > now:
                continue
            tries = 0 if lease is None else lease.tries
            database.leases[key] = _Lease(holder, now + lease_s, tries, call.attempt)
            settled_at = opened.inserted_at + (call.timeout_ms + call.settle_ms) / 1000 + grace_s
            due.append(DueCall(call, owner_gone, overdue, tries, max(0.0, settled_at - now)))
        return due

    async def postpone(self, call: OpenCallRow, holder: str, delay_s: float, tries: int) -> None:
        """See ``ports.store.ReconcilerStore``."""
        database = self._reach()
        key = (call.run_id, call.step)
        lease = database.leases.get(key)
        if lease is not None and (lease.holder, lease.attempt) == (holder, call.attempt):
            until = database.clock.elapsed() + delay_s
            database.leases[key] = replace(lease, until=until, tries=tries)

    # --- Queries ------------------------------------------------------------------------------------------------

    async def runs(self, *, status: str | None, agent: str | None, limit: int) -> list[RunRow]:
        """See ``ports.store.Queries``."""
        found = [
            run
            for run in self._reach().runs.values()
            if (status is None or run.status == status) and (agent is None or run.agent == agent)
        ]
        return sorted(found, key=lambda run: (-run.started_at, run.run_id))[:limit]

    async def run(self, run_id: str) -> RunRow | None:
        """See ``ports.store.Queries``."""
        return self._reach().runs.get(run_id)

    async def waits(self, run_id: str | None = None) -> list[WaitRow]:
        """See ``ports.store.Queries``."""
        found = [wait for wait in self._reach().waits.values() if run_id is None or wait.run_id == run_id]
        return sorted(found, key=lambda wait: (wait.opened_at, wait.run_id, wait.seq))

    async def partition(self, partition: int) -> PartitionRow | None:
        """See ``ports.store.Queries``."""
        row = self._reach().partitions.get(partition)
        return None if row is None else _copy(row)

    async def describe(self) -> dict[str, Any]:
        """See ``ports.store.Queries``."""
        self._reach()
        return {"server": "memory", "schema": "memory", "migrations": []}

    # --- AuditStore ---------------------------------------------------------------------------------------------

    async def tables(self, partition: int) -> Tables:
        """See ``ports.audit.AuditStore``."""
        database = self._reach()
        runs = {run_id: run for run_id, run in database.runs.items() if run.partition == partition}
        row = database.partitions.get(partition)
        return Tables(
            row=None if row is None else _copy(row),
            runs=runs,
            snapshots={
                run_id: {seq: replace(snapshot, state=b"") for seq, snapshot in database.snapshots[run_id].items()}
                for run_id in runs
                if database.snapshots.get(run_id)
            },
            waits={wait_id: wait for wait_id, wait in database.waits.items() if wait.partition == partition},
            calls={key: call.row for key, call in database.open_calls.items() if call.row.partition == partition},
        )

    async def set_row(self, row: PartitionRow) -> PartitionRow:
        """See ``ports.audit.AuditStore``."""
        database = self._reach()
        stored = database.partitions.get(row.partition)
        if (0 if stored is None else stored.version) != row.version:
            raise StaleCompactor(f"partition {row.partition} is no longer at version {row.version}: run it again")
        written = replace(_copy(row), version=row.version + 1)
        database.partitions[row.partition] = written
        return _copy(written)

    async def drop(self, row: PartitionRow) -> PartitionRow:
        """See ``ports.audit.AuditStore``."""
        written = await self.set_row(row)
        database = self._database
        gone = {run_id for run_id, run in database.runs.items() if run.partition == row.partition}
        for run_id in gone:
            del database.runs[run_id]
            database.snapshots.pop(run_id, None)
            database.chunks.pop(run_id, None)
        for wait_id in [wait_id for wait_id, wait in database.waits.items() if wait.partition == row.partition]:
            del database.waits[wait_id]
        for key in [key for key, call in database.open_calls.items() if call.row.partition == row.partition]:
            del database.open_calls[key]
            database.leases.pop(key, None)
        return written

    def _reach(self) -> MemoryDatabase:
        if not self._database.available:
            message = "the in-memory database is switched off"
            raise StoreUnavailable(message)
        return self._database


def _copy(row: PartitionRow) -> PartitionRow:
    """Positions are changed in place by whoever folds: the database keeps its own."""
    return replace(row, positions=Positions.from_json(row.positions.to_json()))


def _is_running(database: MemoryDatabase, run_id: str) -> bool:
    """With a call open: whether the run is not held, or is being cancelled all the same."""
    run = database.runs.get(run_id)
    return run is not None and run.status is Status.RUNNING


def _is_active(database: MemoryDatabase, run: RunRow, held_back: set[str]) -> bool:
    covered_to = max(database.snapshots[run.run_id])
    return run.status is Status.RUNNING or run.parked is not None or covered_to < run.seq or run.run_id in held_back


def _stored(database: MemoryDatabase, run: RunRow) -> StoredRun:
    snapshots = database.snapshots.get(run.run_id, {})
    chunks = database.chunks.get(run.run_id, {})
    return StoredRun(
        run_id=run.run_id,
        partition=run.partition,
        seq=run.seq,
        first_offset=run.first_offset,
        first_epoch=run.first_epoch,
        snapshots=tuple(snapshots[seq] for seq in sorted(snapshots, reverse=True)),
        chunks=tuple(chunks[index] for index in sorted(chunks)),
    )


def _write_snapshots(database: MemoryDatabase, commit: Commit) -> None:
    for run_id, seq, offset, epoch in commit.next_events:
        known = database.snapshots.get(run_id, {}).get(seq)
        if known is not None:
            database.snapshots[run_id][seq] = replace(known, next_offset=offset, next_epoch=epoch)
    starts: dict[str, int] = {}
    for chunk in commit.chunks:
        starts[chunk.run_id] = min(chunk.first_index, starts.get(chunk.run_id, chunk.first_index))
    for run_id, start in starts.items():
        for index in [index for index in database.chunks.get(run_id, {}) if index >= start]:
            del database.chunks[run_id][index]
    for chunk in commit.chunks:
        database.chunks[chunk.run_id][chunk.first_index] = chunk
    for snapshot in commit.snapshots:
        database.snapshots[snapshot.run_id][snapshot.seq] = snapshot
    for run_id in {snapshot.run_id for snapshot in commit.snapshots}:
        for seq in sorted(database.snapshots[run_id])[:-KEPT_SNAPSHOTS]:
            del database.snapshots[run_id][seq]


def _write_waits(database: MemoryDatabase, commit: Commit) -> None:
    opened = {wait.wait_id: wait for wait in commit.opened_waits}
    rebuilt = set(commit.rebuilt)
    gone = {wait.wait_id for wait in database.waits.values() if wait.run_id in rebuilt}
    gone |= {wait_id for _, wait_id in commit.closed_waits}
    for wait_id in gone - set(opened):
        database.waits.pop(wait_id, None)
    for wait_id, wait in opened.items():
        known = database.waits.get(wait_id)
        same = known is not None and known.seq == wait.seq
        database.waits[wait_id] = replace(wait, opened_at=known.opened_at) if known is not None and same else wait


def _write_calls(database: MemoryDatabase, commit: Commit) -> None:
    opened = {(call.run_id, call.step): call for call in commit.opened_calls}
    rebuilt = set(commit.rebuilt)
    gone = {key for key in database.open_calls if key[0] in rebuilt and key not in opened}
    for key in gone | (set(commit.closed_calls) - set(opened)):
        database.open_calls.pop(key, None)
        database.leases.pop(key, None)
    now = database.clock.elapsed()
    for key, call in opened.items():
        known = database.open_calls.get(key)
        same = known is not None and known.row.attempt == call.attempt
        database.open_calls[key] = _OpenCall(call, known.inserted_at if known is not None and same else now)
