"""Reading one run out of its partition of the log, by the rule of validity.

A reader need not begin at the beginning of the log: Postgres says where a run's first event stands and which epoch
was in force there, or how far the compactor has come and which epoch is in force at that place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runfold.codec import log as codec
from runfold.core.events import Event, InputSettled, PartitionClaimed
from runfold.core.fence import Fence, Head, Judgement, Kind
from runfold.core.positions import Positions
from runfold.ports.log import LogRecord
from runfold.ports.store import PartitionRow, RunRow


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader begins, and what it has to know there.

    Attributes:
        offset: Of the first record to read.
        epoch: The epoch in force there; -1 before any claim.
        next_seq: The run's next ``seq`` behind ``covered``.
        covered: Events of the run up to this offset are known already and are not given again; -1: none.
        positions: JSON of the inputs settled below ``offset``, as far as known.
    """

    offset: int
    epoch: int
    next_seq: int = 0
    covered: int = -1
    positions: dict[str, dict[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """A valid record with its place."""

    partition: int
    offset: int
    body: Event | InputSettled


@dataclass(frozen=True, slots=True)
class Place:
    """What Postgres says of a run and its partition; either may be unknown to it.

    ``row`` was read before ``run``: every event of the run below ``row.applied`` is in ``run``.
    """

    row: PartitionRow | None
    run: RunRow | None

    def first(self, begin: int) -> Start:
        """Say where the run's first event can be; ``begin``: the first offset of the log."""
        if self.run is None:
            return self.tail(begin)
        return Start(self.run.first_offset, self.run.first_epoch)

    def tail(self, begin: int) -> Start:
        """Say where events can be that Postgres does not know of; ``begin``: the first offset of the log.

        For a parked run that is everywhere: its row stands still where the compactor gave up.
        """
        known = self.run
        if known is not None and known.parked is not None:
            return self.first(begin)
        start = Start(begin, -1) if self.row is None else Start(self.row.applied, self.row.epoch)
        if self.row is not None:
            start = replace(start, positions=self.row.positions.to_json())
        return start if known is None else replace(start, next_seq=known.seq + 1, covered=known.last_offset)


class Scan:
    """Judges the records of a partition in order, from ``start`` on, and gives those about one run."""

    def __init__(self, run_id: str, partition: int, start: Start) -> None:
        self._run_id = run_id
        self._partition = partition
        self._covered = start.covered
        self._fence = Fence(start.epoch, Positions.from_json(start.positions or {}))
        self._fence.know(run_id, start.next_seq)

    @property
    def void(self) -> int:
        """How many records about the run were void."""
        return self._fence.void

    def admit(self, record: LogRecord) -> Logged | None:
        """Take the next record: a valid event of the run, or a valid settled input of anybody; else None.

        Raises:
            UnknownRecord: This code cannot read a valid event of the run, or cannot judge the record.
        """
        head = Head.decode(record.head)
        if head.kind is Kind.CLAIM:
            self._fence.admit(head, record.offset, None)
            return None
        if head.kind is Kind.EVENT and (record.key != self._run_id or record.offset <= self._covered):
            return None
        if head.epoch != self._fence.epoch:
            self._fence.void += 1
            return None
        body = codec.decode(record.value)
        codec.check_head(head, body)
        if isinstance(body, PartitionClaimed):
            return None
        judgement = self._fence.admit(head, record.offset, record.key, body.cause)
        return Logged(self._partition, record.offset, body) if judgement is Judgement.VALID else None
