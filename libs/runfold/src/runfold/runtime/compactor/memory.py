"""What the compactor keeps of one partition between two commits, and what the next commit writes: pure.

``uncovered`` holds the runs with events that no snapshot covers, in the order of the first such event: so the first
one says where a replay has to start, and which run has waited longest for a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from runfold.core.events import Interrupted
from runfold.ports.store import Commit, PartitionRow
from runfold.runtime.compactor.projection import Projected, is_at_rest, project, run_row, snapshot
from runfold.runtime.compactor.settings import CompactorSettings
from runfold.runtime.restore import Applied, Loaded, Replay


class Memory:
    """The runs of one partition, as a fresh read and the log give them; thrown away when a commit fails.

    Args:
        row: As stored; the fence of ``replay`` stands at its ``applied``.
        replay: Its runs are shared: this class removes those that leave memory.
        now: Seconds, by the clock that is passed to ``commit``.
    """

    def __init__(self, row: PartitionRow, replay: Replay, settings: CompactorSettings, now: float) -> None:
        self.row = row
        self.replay = replay
        self._settings = settings
        self._projected: dict[str, Projected] = {}
        self._set_aside: set[str] = set()
        # Runs whose rows are written anew, since nobody knows here what the store holds of them.
        self._unprojected = dict.fromkeys(replay.runs)
        behind = [loaded for loaded in replay.runs.values() if loaded.uncovered is not None]
        behind.sort(key=lambda loaded: loaded.uncovered or (0, 0))
        self._uncovered: dict[str, float] = {loaded.run_id: now for loaded in behind}
        # One that is parked gets no snapshot any more, so it stays as long as this object.
        self._parked = {loaded.run_id for loaded in behind if loaded.parked is not None}

    @property
    def parked(self) -> int:
        """How many runs cannot be folded."""
        return len(self._parked)

    def has_work(self, now: float) -> bool:
        """Whether a commit is due although the log brought nothing."""
        return bool(self._unprojected) or next(self._stale(now), None) is not None

    def commit(self, applied: int, items: Iterable[Applied], now: float, tail: tuple[int, str] | None = None) -> Commit:
        """Say what the next transaction writes, as if it had happened; if it fails, this object is thrown away.

        Args:
            applied: Offset behind the last record of the batch.
            items: Its valid records.
            now: Seconds, by a clock that never goes back.
            tail: Offset and digest of the last record of the batch; None: the batch is empty.
        """
        start, commit = self.row.applied, Commit(self.row, self.row.applied)
        touched, opened_at = self._touch(items, now)
        for run_id in list(islice(self._unprojected, self._settings.batch_runs)):
            touched.setdefault(run_id, self.replay.runs[run_id])
        for run_id, loaded in touched.items():
            self._write(commit, loaded, opened_at, start)
            self._unprojected.pop(run_id, None)
        due = {run_id: loaded for run_id, loaded in touched.items() if self._is_due(loaded)}
        due.update((loaded.run_id, loaded) for loaded in islice(self._stale(now), self._settings.batch_runs))
        for loaded in due.values():
            self._snapshot(commit, loaded)
        commit.row = self._next_row(applied, tail or self.row.tail)
        return commit

    def committed(self, row: PartitionRow, commit: Commit) -> None:
        """Take note of the row as stored; runs at rest that a snapshot covers leave memory."""
        self.row = row
        for run_id in {run.run_id for run in commit.runs} | {written.run_id for written in commit.snapshots}:
            loaded = self.replay.runs[run_id]
            if loaded.state is None or loaded.uncovered is not None or loaded.parked is not None:
                continue
            if is_at_rest(loaded.state):
                del self.replay.runs[run_id]
                self.replay.fence.forget(run_id)
                self._projected.pop(run_id, None)

    def _touch(self, items: Iterable[Applied], now: float) -> tuple[dict[str, Loaded], dict[str, int]]:
        touched: dict[str, Loaded] = {}
        opened_at: dict[str, int] = {}
        for _, _, record, loaded in items:
            if loaded is None:
                continue
            if loaded.run_id not in touched:
                touched[loaded.run_id] = loaded
                self._fall_behind(loaded, now)
            if isinstance(record, Interrupted):
                opened_at[record.wait_id] = record.at
        return touched, opened_at

    def _fall_behind(self, loaded: Loaded, now: float) -> None:
        """Take note of a run with an event that no snapshot covers."""
        if loaded.parked is not None:
            self._parked.add(loaded.run_id)
        if loaded.run_id in self._uncovered or loaded.uncovered is None:
            return
        self._uncovered[loaded.run_id] = now
        if loaded.uncovered[0] < self.row.applied:
            # Its newest snapshot was set aside: the replay starts further back, and a good one is due at once.
            self._set_aside.add(loaded.run_id)
            ordered = sorted(self._uncovered.items(), key=lambda item: self.replay.runs[item[0]].uncovered or (0, 0))
            self._uncovered = dict(ordered)

    def _write(self, commit: Commit, loaded: Loaded, opened_at: dict[str, int], start: int) -> None:
        """Add the run's row, its waits and calls, and where it went on after its newest snapshot."""
        commit.runs.append(run_row(loaded, self.row.partition))
        if loaded.snapshot_seq >= 0 and loaded.uncovered is not None and loaded.uncovered[0] >= start:
            commit.next_events.append((loaded.run_id, loaded.snapshot_seq, *loaded.uncovered))
        if loaded.state is not None:
            before = self._projected.get(loaded.run_id)
            if before is None and loaded.first is not None and loaded.first[0] >= start:
                before = Projected()
            self._projected[loaded.run_id] = project(commit, loaded.state, before, opened_at)

    def _is_due(self, loaded: Loaded) -> bool:
        if loaded.state is None or loaded.uncovered is None or loaded.parked is not None:
            return False
        many = loaded.state.seq - loaded.snapshot_seq >= self._settings.snapshot_every
        return many or loaded.run_id in self._set_aside or is_at_rest(loaded.state)

    def _stale(self, now: float) -> Iterator[Loaded]:
        for run_id, since in self._uncovered.items():
            if now - since < self._settings.snapshot_after_s:
                return
            loaded = self.replay.runs[run_id]
            if loaded.parked is None:
                yield loaded

    def _snapshot(self, commit: Commit, loaded: Loaded) -> None:
        state = loaded.state
        if state is None:
            return
        row, chunks = snapshot(loaded, state)
        commit.snapshots.append(row)
        if loaded.has_unreadable:
            commit.unreadable.append(loaded.run_id)
            loaded.has_unreadable = False
        commit.chunks.extend(chunks)
        loaded.covered, loaded.snapshot_seq, loaded.message_count = row.offset, row.seq, row.message_count
        loaded.uncovered = None
        del self._uncovered[loaded.run_id]
        self._set_aside.discard(loaded.run_id)

    def _next_row(self, applied: int, tail: tuple[int, str] | None) -> PartitionRow:
        fence = self.replay.fence
        first = next(iter(self._uncovered), None)
        uncovered = None if first is None else self.replay.runs[first].uncovered
        replay_from, replay_epoch = (applied, fence.epoch) if uncovered is None else uncovered
        return PartitionRow(
            partition=self.row.partition,
            version=self.row.version,
            cluster_id=self.row.cluster_id,
            topic_id=self.row.topic_id,
            applied=applied,
            epoch=fence.epoch,
            replay_from=replay_from,
            replay_epoch=replay_epoch,
            positions=fence.positions,
            tail=tail,
            input_ids=self.row.input_ids,
        )
