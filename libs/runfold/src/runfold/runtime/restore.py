"""From snapshots and the log's tail to the runs of a partition: used at every take-over, by executor and compactor.

A snapshot says which events it covers by *offset*: skipping by ``seq`` would revive a void record that was
pipelined behind a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from runfold.codec import log as log_codec
from runfold.codec import snapshots as snapshot_codec
from runfold.codec.snapshots import CorruptSnapshot
from runfold.core.errors import IllegalTransition, UnknownRecord
from runfold.core.events import InputSettled, PartitionClaimed, RunEvent
from runfold.core.fence import Fence, Head, Judgement, Kind
from runfold.core.state import State
from runfold.core.transitions import fold
from runfold.ports.log import Log, LogRecord, LogUnrecoverable, ReadableLog
from runfold.ports.store import PartitionRow, Snapshots, StoredRun
from runfold.runtime.identity import inspect
from runfold.runtime.reading import READ_BATCH, ReadAhead

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Loaded:
    """One run in memory.

    Attributes:
        state: None until its ``run_started`` is applied.
        covered: Offset of the last event that its newest good snapshot covers; -1: none.
        snapshot_seq: ``seq`` of that event; ``message_count``: transcript entries that stand in chunks.
        uncovered: (offset, epoch) of the first event after it; None while there is none.
        last_offset: Of the last event applied; ``first``: (offset, epoch) of its ``run_started``.
        parked: Why this code cannot fold it on, or None.
        has_unreadable: A snapshot of it was set aside, and is still stored.
    """

    run_id: str
    state: State | None = None
    covered: int = -1
    snapshot_seq: int = -1
    message_count: int = 0
    uncovered: tuple[int, int] | None = None
    last_offset: int = -1
    first: tuple[int, int] | None = None
    parked: str | None = None
    has_unreadable: bool = False


class Applied(NamedTuple):
    """A valid record that was applied: an event with its run, or a settled input (``loaded`` None).

    ``record`` is None for a valid event that this code cannot decode: its run is parked.
    """

    offset: int
    epoch: int
    record: RunEvent | InputSettled | None
    loaded: Loaded | None


class Replay:
    """Judges and folds the records of one partition onto its runs, in order.

    Args:
        store: Where runs are loaded from that are met and not in memory; None: such a run is new.

    Attributes:
        runs: By id; shared with the caller, who may remove runs that left memory (and then tells the fence).
        set_aside: Snapshots that could not be read so far.
    """

    def __init__(self, partition: int, log: ReadableLog, store: Snapshots | None, fence: Fence) -> None:
        self.partition = partition
        self.fence = fence
        self.runs: dict[str, Loaded] = {}
        self.set_aside = 0
        self._log = log
        self._store = store

    async def adopt(self, stored: Iterable[StoredRun], upto: int | None, before: int | None = None) -> None:
        """Take runs into memory from their snapshots; events that these do not cover are applied later.

        Args:
            stored: The runs.
            upto: Offset of the next record that will be applied: a run whose newest snapshot is set aside is
                folded again from the log up to there. None: the log's end.
            before: Snapshots at this offset or behind are left alone: they are of a later moment than the row that was
                read with them (only some of the tables were restored), and what they cover settles inputs that the
                row does not know. None: there are none.
        """
        for run in stored:
            set_aside = self.set_aside
            loaded = await self._load(run, upto, before)
            loaded.has_unreadable = self.set_aside > set_aside
            self.runs[run.run_id] = loaded
            self.fence.know(run.run_id, 0 if loaded.state is None else loaded.state.seq + 1)

    async def apply(self, records: Sequence[LogRecord]) -> list[Applied]:
        """Judge and fold; gives the valid ones, claims left out.

        Raises:
            LogUnrecoverable: A record that nobody may judge (no header): another program wrote into the log.
        """
        heads = [self._head(record) for record in records]
        unknown = {
            record.key
            for record, head in zip(records, heads, strict=True)
            if head.kind is Kind.EVENT and record.key is not None and record.key not in self.runs
        }
        if unknown and self._store is not None:
            stored = await self._store.load_runs(sorted(unknown))
            await self.adopt(stored.values(), records[0].offset, records[0].offset)
        applied = []
        for record, head in zip(records, heads, strict=True):
            item = self._apply(record, head)
            if item is not None:
                applied.append(item)
        return applied

    def apply_one(self, record: LogRecord) -> Applied | None:
        """Judge and fold one record; its run must be in memory, or new. As ``apply``, for who loads nothing."""
        return self._apply(record, self._head(record))

    async def read(self, start: int, end: int, *, is_tail: bool = False) -> None:
        """Apply [start, end) of the log; of its tail nobody else has said yet which inputs it settles.

        Raises:
            LogUnrecoverable: See ``refuse_unknown``.
        """
        while start < end:
            records = await self._log.read(self.partition, start, end, READ_BATCH)
            applied = await self.apply(records)
            if is_tail:
                refuse_unknown(self.partition, applied)
            start = records[-1].offset + 1

    def _head(self, record: LogRecord) -> Head:
        try:
            return Head.decode(record.head)
        except UnknownRecord as error:
            raise LogUnrecoverable(
                f"log partition {self.partition}, offset {record.offset}: {error}. Only Runfold's executors may write "
                "the log: find and stop the other writer, and upgrade this service if a newer release wrote it."
            ) from error

    def _apply(self, record: LogRecord, head: Head) -> Applied | None:
        loaded = None
        if head.kind is Kind.EVENT:
            if record.key is None:
                self.fence.void += 1
                return None
            loaded = self.runs.get(record.key)
            if loaded is not None and record.offset <= loaded.covered:
                return None
        body, problem = _decode(record, head)
        event = body if isinstance(body, RunEvent) else None
        settled = body if isinstance(body, InputSettled) else None
        settling = event or settled
        cause = None if settling is None else settling.cause
        if self.fence.admit(head, record.offset, record.key, cause) is not Judgement.VALID:
            return None
        if settled is not None or record.key is None:
            return Applied(record.offset, head.epoch, settled, None)
        if loaded is None:
            loaded = self.runs.get(record.key)
            if loaded is None:
                loaded = self.runs[record.key] = Loaded(record.key)
        self._fold(loaded, record.offset, head, event, problem)
        return Applied(record.offset, head.epoch, event, loaded)

    def _fold(self, loaded: Loaded, offset: int, head: Head, event: RunEvent | None, problem: str | None) -> None:
        loaded.last_offset = offset
        if loaded.first is None:
            loaded.first = (offset, head.epoch)
        if loaded.uncovered is None:
            loaded.uncovered = (offset, head.epoch)
        if loaded.parked is not None:
            return
        if event is None:
            self._park(loaded, offset, problem or "not an event of a run")
            return
        try:
            loaded.state = fold(loaded.state, event)  # type: ignore[arg-type]  # Event is the union of RunEvent's classes
        except Exception as error:  # noqa: BLE001 - illegal, or a defect of ours: this run only, and never skipped
            self._park(loaded, offset, str(error) if isinstance(error, IllegalTransition) else repr(error))

    def _park(self, loaded: Loaded, offset: int, problem: str) -> None:
        loaded.parked = problem
        _log.error("run_parked", run_id=loaded.run_id, partition=self.partition, offset=offset, error=problem)

    async def _load(self, run: StoredRun, upto: int | None, before: int | None) -> Loaded:
        for index, snapshot in enumerate(run.snapshots):
            if before is not None and snapshot.offset >= before:
                continue
            try:
                state = snapshot_codec.decode_snapshot(snapshot, run.chunks)
            except (CorruptSnapshot, UnknownRecord) as error:
                self.set_aside += 1
                _log.error("snapshot_set_aside", run_id=run.run_id, seq=snapshot.seq, error=str(error))
                continue
            loaded = Loaded(
                run.run_id,
                state,
                covered=snapshot.offset,
                snapshot_seq=snapshot.seq,
                message_count=snapshot.message_count,
                last_offset=snapshot.offset,
                first=(run.first_offset, run.first_epoch),
            )
            if index == 0:
                return loaded
            if snapshot.next_offset is not None and snapshot.next_epoch is not None:
                return await self._try_refold(loaded, snapshot.next_offset, snapshot.next_epoch, upto)
        loaded = Loaded(run.run_id, first=(run.first_offset, run.first_epoch))
        return await self._try_refold(loaded, run.first_offset, run.first_epoch, upto)

    async def _try_refold(self, loaded: Loaded, start: int, epoch: int, upto: int | None) -> Loaded:
        try:
            return await self._refold(loaded, start, epoch, upto)
        except LogUnrecoverable as error:
            self._park(loaded, start, f"no snapshot of it is readable, and the log does not go back so far: {error}")
            return loaded

    async def _refold(self, loaded: Loaded, start: int, epoch: int, upto: int | None) -> Loaded:
        """Fold one run on from the log, for want of a good snapshot."""
        end = (await self._log.bounds(self.partition)).end if upto is None else upto
        alone = Replay(self.partition, self._log, self._store, Fence(epoch))
        alone.runs[loaded.run_id] = loaded
        alone.fence.know(loaded.run_id, 0 if loaded.state is None else loaded.state.seq + 1)
        while start < end:
            records = await self._log.read(self.partition, start, end, READ_BATCH)
            start = records[-1].offset + 1
            mine = [
                record for record in records if record.key == loaded.run_id or self._head(record).kind is Kind.CLAIM
            ]
            for record in mine:
                alone._apply(record, self._head(record))
        # What was folded here must not be folded again when the caller's records come to it.
        loaded.covered = max(loaded.covered, loaded.last_offset)
        return loaded


def refuse_unknown(partition: int, items: Iterable[Applied]) -> None:
    """An input that is settled by a record of a newer release is settled for others, and would be taken again by us.

    Raises:
        LogUnrecoverable: There is one: this release must not work on this partition.
    """
    for item in items:
        if item.loaded is None and item.record is None:
            raise LogUnrecoverable(
                f"log partition {partition}, offset {item.offset}: a valid record that settles an input cannot be "
                "decoded by this release: upgrade this service."
            )


def _decode(record: LogRecord, head: Head) -> tuple[RunEvent | InputSettled | PartitionClaimed | None, str | None]:
    try:
        body = log_codec.decode(record.value)
        log_codec.check_head(head, body)
        log_codec.check_key(record.key, body)
    except UnknownRecord as error:
        return None, str(error)
    return body, None


async def take_over(partition: int, log: Log, store: Snapshots, epoch: int) -> tuple[PartitionRow | None, Replay]:
    """Bring the runs of a partition into memory, up to a claim.

    Row, runs and input positions have to be of one moment: a run loaded from a newer snapshot than the row would
    have its events skipped, and with them the inputs that they settle. So the keys of the tail are read first, and
    then everything in one transaction; nothing is loaded behind it.

    Args:
        epoch: Offset of the own claim.

    Returns:
        The partition's row, and the replay. The caller compares the row's epoch with its own; where it is later, the
        replay is not made.

    Raises:
        LogUnrecoverable: The log is not what was recorded of it.
        StoreUnavailable: Try again.
    """
    first, _ = await store.load_partition(partition)
    ahead = ReadAhead(log, partition)
    await ahead.load(first, epoch)
    row, stored = await store.load_partition(partition, ahead.keys)
    known = row or await nothing_stored(partition, log)
    await inspect(known, ahead, store)
    if known.epoch > epoch:
        return row, Replay(partition, log, None, Fence(epoch))
    replay = await _replay_applied(partition, ahead, None, known, stored)
    await replay.read(known.applied, epoch, is_tail=True)
    return row, replay


async def nothing_stored(partition: int, log: Log) -> PartitionRow:
    """Give the row of a partition of which Postgres holds nothing: its log has to be read from the first record on."""
    identity = await log.identity()
    return PartitionRow.empty(partition, identity.cluster_id, identity.topic_id)


async def restore(partition: int, log: Log, store: Snapshots, row: PartitionRow, stored: list[StoredRun]) -> Replay:
    """Bring the runs of a partition into memory as they were at ``row.applied``: for the compactor.

    Args:
        row, stored: Of ``load_partition``, one transaction.

    Returns:
        The replay: its runs, and its fence with the epoch and the input positions in force.

    Raises:
        LogUnrecoverable: The log is not what was recorded of it.
    """
    await inspect(row, log, store)
    return await _replay_applied(partition, log, store, row, stored)


async def _replay_applied(
    partition: int, log: ReadableLog, store: Snapshots | None, row: PartitionRow, stored: list[StoredRun]
) -> Replay:
    # Below ``applied`` the inputs of the row are settled already: a record there is judged by epoch and seq, and
    # against its neighbours.
    replay = Replay(partition, log, store, Fence(row.replay_epoch))
    await replay.adopt(stored, row.replay_from, row.applied)
    await replay.read(row.replay_from, row.applied)
    replay.fence.positions = row.positions
    return replay
