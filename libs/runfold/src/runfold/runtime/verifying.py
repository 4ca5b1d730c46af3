"""Folds a partition's log again and compares the outcome with everything that Postgres holds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from runfold.codec.snapshots import CorruptSnapshot, decode_snapshot, encode_state
from runfold.core.errors import UnknownRecord
from runfold.core.events import Version
from runfold.core.fence import Fence
from runfold.core.stored import SnapshotRow
from runfold.ports.audit import AuditStore, Tables
from runfold.ports.log import Log, LogBounds, LogUnrecoverable
from runfold.ports.store import Commit, PartitionRow
from runfold.runtime.compactor.projection import project, run_row
from runfold.runtime.identity import inspect
from runfold.runtime.reading import READ_BATCH
from runfold.runtime.restore import Applied, Loaded, Replay

Progress = Callable[[int, int, int], None]
"""Told of the partition, the offset that was reached, and the one that will be."""

_PAGE = 100
# When Postgres got to know of a wait is no part of what the log says.
_FREE = {"opened_at"}


@dataclass(slots=True)
class Report:
    """What was found of one partition.

    Attributes:
        records: Of the log that were folded; ``void``: of them; ``behind``: records that Postgres does not know yet.
        runs, snapshots: Compared.
        differences: Each with its run; empty: all is as the log says.
        notes: What could not be looked at, and why.
    """

    partition: int
    records: int = 0
    void: int = 0
    behind: int = 0
    runs: int = 0
    snapshots: int = 0
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def verify(partition: int, log: Log, store: AuditStore, progress: Progress, run_id: str | None = None) -> Report:
    """Compare one partition, or one run of it.

    Args:
        partition: Its number.
        log, store: What is compared.
        progress: Told now and then.
        run_id: Only this run.

    Raises:
        StoreUnavailable, LogUnavailable: Try again.
    """
    report = Report(partition)
    tables = await store.tables(partition)
    bounds = await log.bounds(partition)
    if tables.row is None:
        report.behind = bounds.end
        report.notes.append("Postgres holds nothing of it: start the compactor, which folds the log from its beginning")
        report.differences.extend(f"run {stray}: in Postgres, though its partition is not" for stray in tables.runs)
        return report
    try:
        await inspect(tables.row, log, store)
    except LogUnrecoverable as error:
        report.differences.append(str(error))
        return report
    report.behind = bounds.end - tables.row.applied
    comparison = _Comparison(report, tables, tables.row, bounds, run_id)
    await comparison.fold(log, progress)
    comparison.finish()
    await _prove_snapshots(report, tables, store, run_id)
    return report


class _Comparison:
    """Folds, and compares each thing as soon as it can be."""

    def __init__(
        self, report: Report, tables: Tables, row: PartitionRow, bounds: LogBounds, run_id: str | None
    ) -> None:
        self._report = report
        self._tables = tables
        self._row = row
        self._only = run_id
        self._begin, epoch = _start(tables, bounds, run_id)
        self._replay: Replay | None = None
        self._fence = Fence(epoch)
        self._met: dict[str, set[int]] = {}
        self._uncovered: list[tuple[int, str]] = []

    async def fold(self, log: Log, progress: Progress) -> None:
        """Fold [begin, applied) of the log."""
        report, row = self._report, self._row
        self._replay = Replay(row.partition, log, None, self._fence)
        start = self._begin
        while start < row.applied:
            records = await log.read(row.partition, start, row.applied, READ_BATCH)
            for record in records:
                if self._only is not None and record.key not in (None, self._only):
                    continue
                report.records += 1
                applied = self._replay.apply_one(record)
                if applied is not None and applied.loaded is not None:
                    self._take(applied, applied.loaded)
            start = records[-1].offset + 1
            progress(row.partition, start, row.applied)
        report.void = self._fence.void

    def _take(self, applied: Applied, loaded: Loaded) -> None:
        """Compare the snapshots at this event, and at the one before it."""
        stored = self._tables.snapshots.get(loaded.run_id)
        state = loaded.state
        if not stored or state is None or loaded.parked is not None:
            return
        if state.seq in stored:
            _, digest = encode_state(state)
            self._met.setdefault(loaded.run_id, set()).add(state.seq)
            made = (applied.offset, digest, len(state.transcript))
            self._compare_snapshot(loaded.run_id, stored[state.seq], made)
        before = stored.get(state.seq - 1)
        if before is not None:
            following = (before.next_offset, before.next_epoch)
            if following != (applied.offset, applied.epoch):
                self._differ(
                    loaded.run_id,
                    f"its snapshot at seq {before.seq} says that it goes on at (offset, epoch) {following}, "
                    f"the log says {(applied.offset, applied.epoch)}",
                )
            if before.seq == max(stored):
                self._uncovered.append((applied.offset, loaded.run_id))

    def _compare_snapshot(self, run_id: str, found: SnapshotRow, made: tuple[int, str, int]) -> None:
        self._report.snapshots += 1
        held = (found.offset, found.digest, found.message_count)
        for name, expected, actual in zip(("offset", "digest", "message_count"), made, held, strict=True):
            if expected != actual:
                self._differ(run_id, f"its snapshot at seq {found.seq} has {name} {actual}, the log gives {expected}")

    def finish(self) -> None:
        """Compare the rows of runs, waits, calls and of the partition itself."""
        runs = {} if self._replay is None else self._replay.runs
        for run_id, loaded in runs.items():
            self._compare_run(run_id, loaded)
        known = {self._only} & set(self._tables.runs) if self._only is not None else set(self._tables.runs)
        early = {run_id for run_id in known - set(runs) if self._tables.runs[run_id].first_offset < self._begin}
        if early:
            self._report.notes.append(
                f"{len(early)} runs began before offset {self._begin}, where the log begins: they cannot be compared"
            )
        for run_id in sorted(known - set(runs) - early):
            self._differ(run_id, "is in Postgres, and has no valid event in the log")
        if self._only is None:
            self._compare_row()

    def _compare_run(self, run_id: str, loaded: Loaded) -> None:
        self._report.runs += 1
        stored = self._tables.runs.get(run_id)
        if stored is None:
            self._differ(run_id, "is in the log, and not in Postgres")
            return
        for name, expected, actual in _differences(run_row(loaded, self._row.partition), stored):
            self._differ(run_id, f"its {name} is {actual!r}, the log says {expected!r}")
        if loaded.state is None or loaded.parked is not None:
            return
        snapshots = self._tables.snapshots.get(run_id, {})
        for seq in sorted(set(snapshots) - self._met.get(run_id, set())):
            self._differ(run_id, f"has a snapshot at seq {seq}, where the log has no event")
        if not snapshots and loaded.first is not None:
            self._uncovered.append((loaded.first[0], run_id))
        commit = Commit(self._row)
        project(commit, loaded.state, None, {})
        waits = {wait.wait_id: wait for wait in self._tables.waits.values() if wait.run_id == run_id}
        calls = {call.step: call for call in self._tables.calls.values() if call.run_id == run_id}
        self._compare_rows(run_id, "wait", {wait.wait_id: wait for wait in commit.opened_waits}, waits)
        self._compare_rows(run_id, "open call of step", {call.step: call for call in commit.opened_calls}, calls)

    def _compare_rows(self, run_id: str, what: str, made: Mapping[Any, Any], held: Mapping[Any, Any]) -> None:
        for key in sorted(set(made) | set(held), key=str):
            if key not in held:
                self._differ(run_id, f"lacks its {what} {key}")
            elif key not in made:
                self._differ(run_id, f"has a {what} {key} that is not open")
            else:
                for name, expected, actual in _differences(made[key], held[key]):
                    self._differ(run_id, f"the {what} {key} has {name} {actual!r}, the log says {expected!r}")

    def _compare_row(self) -> None:
        row, where = self._row, f"partition {self._row.partition}"
        if self._begin == 0:
            positions = self._fence.positions.to_json()
            for topic in sorted(set(positions) | set(row.positions.to_json())):
                expected, actual = positions.get(topic, _NOTHING), row.positions.to_json().get(topic, _NOTHING)
                if expected != actual:
                    self._report.differences.append(
                        f"{where}: inputs of {topic} are settled to {actual}, the log says {expected}"
                    )
        if row.epoch != self._fence.epoch:
            self._report.differences.append(f"{where}: its epoch is {row.epoch}, the log says {self._fence.epoch}")
        for offset, run_id in sorted(self._uncovered):
            if offset < row.replay_from:
                self._differ(run_id, f"goes on at {offset}, but replays begin at {row.replay_from}")

    def _differ(self, run_id: str, what: str) -> None:
        self._report.differences.append(f"run {run_id}: {what}")


_NOTHING: dict[str, object] = {"next": 0, "above": []}


def _start(tables: Tables, bounds: LogBounds, run_id: str | None) -> tuple[int, int]:
    """Say where folding begins, and the epoch in force there."""
    run = None if run_id is None else tables.runs.get(run_id)
    if run is not None and run.first_offset >= bounds.begin:
        return run.first_offset, run.first_epoch
    if bounds.begin == 0:
        return 0, -1
    later = [(run.first_offset, run.first_epoch) for run in tables.runs.values() if run.first_offset >= bounds.begin]
    return min(later, default=(bounds.begin, -1))


def _differences(made: Any, held: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any two rows of one type
    for column in fields(made):
        expected, actual = getattr(made, column.name), getattr(held, column.name)
        if column.name not in _FREE and _storable(expected) != _storable(actual):
            yield column.name, expected, actual


def _storable(value: Any) -> Any:  # noqa: ANN401 - any column
    """Give a value as Postgres can hold it: a text without NUL."""
    match value:
        case str():
            return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        case tuple() | list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case Version():
            return [_storable(getattr(value, f.name)) for f in fields(value)]
        case _:
            return value


async def _prove_snapshots(report: Report, tables: Tables, store: AuditStore, run_id: str | None) -> None:
    """Let each stored snapshot prove itself: its digest, its chunks, its transcript's hash."""
    run_ids = sorted(tables.snapshots) if run_id is None else [run_id]
    for index in range(0, len(run_ids), _PAGE):
        for stored in (await store.load_runs(run_ids[index : index + _PAGE])).values():
            for snapshot in stored.snapshots:
                try:
                    decode_snapshot(snapshot, stored.chunks)
                except (CorruptSnapshot, UnknownRecord) as error:
                    report.differences.append(f"run {stored.run_id}: {error}")
