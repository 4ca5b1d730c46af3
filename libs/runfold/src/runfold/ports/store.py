"""Snapshots and projections: what Postgres holds. Carries encoded snapshots; codec.snapshots reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from runfold.core.events import Recovery, Version, WaitReason
from runfold.core.payload import Payload
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.core.stored import ChunkRow, SnapshotRow

__all__ = [
    "ChunkRow",
    "Commit",
    "CompactorStore",
    "DueCall",
    "OpenCallRow",
    "PartitionRow",
    "Queries",
    "ReconcilerStore",
    "RunRow",
    "SnapshotRow",
    "Snapshots",
    "StaleCompactor",
    "StoreUnavailable",
    "StoredRun",
    "WaitRow",
    "Watermark",
]


class StoreUnavailable(Exception):
    """Postgres could not be reached, or the outcome of a commit is unknown: try again from a fresh read."""


class StaleCompactor(Exception):
    """Another compactor has committed meanwhile: drop everything in memory and start from a fresh read."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Where a partition's row stood at the moment of an answer: which log it is about, and how far it was folded.

    A database that was restored from a backup answers with a watermark below one that was seen before: what it says of
    runs is older than what its reader relies on.
    """

    cluster_id: str
    topic_id: str
    applied: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """How far the compactor has come with one partition.

    Attributes:
        version: Raised by every commit.
        cluster_id, topic_id: Which log this row is about.
        applied: Offset of the next log record to fold.
        epoch: The epoch in force there; -1 before any claim.
        replay_from: Offset of the first valid event of any run that no snapshot covers; ``applied`` if there is none.
        replay_epoch: The epoch in force there.
        positions: Which inputs are settled by the records below ``applied``.
        tail: (offset, digest) of the last record that was folded, as ``runtime.identity`` computes it: a log that was
            truncated and has grown again holds another one there. None: not known.
        input_ids: Which topics the positions are about: input topic -> its id; {} where not known yet.
    """

    partition: int
    version: int
    cluster_id: str
    topic_id: str
    applied: int
    epoch: int
    replay_from: int
    replay_epoch: int
    positions: Positions
    tail: tuple[int, str] | None = None
    input_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def watermark(self) -> Watermark:
        """What answers of this moment may be believed for."""
        return Watermark(self.cluster_id, self.topic_id, self.applied)

    @classmethod
    def empty(cls, partition: int, cluster_id: str, topic_id: str) -> Self:
        """Say that nothing of a partition is stored yet: its log has to be read from its first record on."""
        return cls(
            partition=partition,
            version=0,
            cluster_id=cluster_id,
            topic_id=topic_id,
            applied=0,
            epoch=-1,
            replay_from=0,
            replay_epoch=-1,
            positions=Positions(),
        )


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What Postgres holds of one run, for loading it.

    Attributes:
        snapshots: Newest first; those that are kept (two).
        chunks: In order of ``first_index``, all of them.
        first_offset, first_epoch: Of its ``run_started`` and the epoch in force there.
    """

    run_id: str
    partition: int
    seq: int
    first_offset: int
    first_epoch: int
    snapshots: tuple[SnapshotRow, ...]
    chunks: tuple[ChunkRow, ...]


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of ``runs``: what people ask about.

    Attributes:
        parked: Why the compactor cannot fold it, or None.
        usage: Token totals; ``cost_nano_usd``: None when no call was priced.
        started_at, updated_at: Milliseconds since 1970, by the writers' clocks.
    """

    run_id: str
    partition: int
    agent: str
    status: Status
    step: int
    seq: int
    version: Version
    usage: Mapping[str, int]
    cost_nano_usd: int | None
    unpriced_calls: int
    unaccounted_calls: int
    first_offset: int
    first_epoch: int
    last_offset: int
    started_at: int
    updated_at: int
    parked: str | None = None
    output: Payload | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WaitRow:
    """One open wait; ``detail`` is a JSON object as bytes or a blob."""

    wait_id: str
    run_id: str
    partition: int
    step: int
    seq: int
    reason: WaitReason
    opened_at: int
    detail: Payload
    tool: str | None = None
    tool_call_id: str | None = None
    arguments: Payload | None = None
    arguments_digest: str | None = None
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class OpenCallRow:
    """One tool call that was requested and has not returned; the row also has ``inserted_at``, by Postgres' clock.

    ``settle_ms``: how long after the call's end its lookup may still miss it.
    """

    run_id: str
    step: int
    partition: int
    agent: str
    tool: str
    tool_call_id: str
    arguments: Payload
    attempt: int
    epoch: int
    recovery: Recovery
    timeout_ms: int
    settle_ms: int = 0


@dataclass(slots=True)
class Commit:
    """What one compactor transaction writes.

    Attributes:
        row: The partition's new row; its ``version`` is the one *expected* in Postgres (0: the row does not exist yet).
        expected_applied: The ``applied`` that is expected there too: a database restored from a backup comes by the
            same versions a second time. None: whatever it is.
        runs: Upserted; a row whose ``seq`` is lower than the stored one is not written.
        unreadable: Runs that have a snapshot that could not be read: those stored before are removed, the commit has a
            new one.
        next_events: (run_id, snapshot seq, offset, epoch): the run's next event after an older snapshot.
        chunks: Replace what the store holds of their runs from their ``first_index`` on (normally nothing).
        closed_waits: (run_id, wait_id); ``closed_calls``: (run_id, step). Closed ones are removed before opened ones
            are upserted; an open call keeps its ``inserted_at`` as long as its attempt is the same, an open wait its
            ``opened_at`` as long as its ``seq`` is.
        rebuilt: Runs all of whose waits and open calls are in ``opened_waits`` and ``opened_calls``: whatever else the
            store holds of them is removed (the first commit after a fresh read).
    """

    row: PartitionRow
    expected_applied: int | None = None
    runs: list[RunRow] = field(default_factory=list)
    snapshots: list[SnapshotRow] = field(default_factory=list)
    chunks: list[ChunkRow] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    next_events: list[tuple[str, int, int, int]] = field(default_factory=list)
    opened_waits: list[WaitRow] = field(default_factory=list)
    closed_waits: list[tuple[str, str]] = field(default_factory=list)
    opened_calls: list[OpenCallRow] = field(default_factory=list)
    closed_calls: list[tuple[str, int]] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)


class Snapshots(Protocol):
    """What executors and compactors read, to take over a partition or to load a run."""

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """Read, in one repeatable-read transaction, the partition's row and every run that has to be in memory.

        Those are: runs that are ``running`` or parked, runs with events that no snapshot covers, and runs held back
        by ``version_mismatch`` or ``unknown_agent``. A run without any snapshot (all of it is in the tail) is not
        among them.

        Args:
            partition: Its number.
            also: Runs that are read too, whatever their status, as far as they exist.

        Raises:
            StoreUnavailable: Try again.
        """
        ...

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """Read runs by id, whatever their status; ids that do not exist are absent from the answer."""
        ...

    async def load_runs_as_of(
        self, partition: int, run_ids: Sequence[str]
    ) -> tuple[Watermark | None, dict[str, StoredRun]]:
        """As ``load_runs``, with the watermark of the same moment; None where the partition has no row."""
        ...

    async def covered_as_of(self, partition: int, seqs: Mapping[str, int]) -> tuple[Watermark | None, set[str]]:
        """Of these runs (run_id -> seq of its last event), those with a snapshot at exactly that event.

        And the watermark of the same moment, as ``load_runs_as_of``.
        """
        ...

    async def partition(self, partition: int) -> PartitionRow | None:
        """How far the compactor has come."""
        ...

    async def runs_from(self, partition: int, offset: int, limit: int) -> list[str]:
        """Ids of runs of the partition whose last event known here stands at ``offset`` or behind, oldest first."""
        ...


class CompactorStore(Snapshots, Protocol):
    """What the compactor writes."""

    async def commit(self, commit: Commit) -> PartitionRow:
        """Write everything or nothing; give the row as stored, its version raised.

        Keeps the newest two snapshots of each run, removes leases of closed calls, lowers no run's ``seq``.

        Raises:
            StaleCompactor: The stored version, or ``applied``, is not the expected one.
            StoreUnavailable: Nothing is known: read again.
        """
        ...


@dataclass(frozen=True, slots=True)
class DueCall:
    """A dangling call that this reconciler has leased.

    Attributes:
        owner_gone: Its writer's epoch is over.
        overdue: ``timeout_ms`` + grace have passed since the row's insertion, by Postgres' clock: only then is
            "absent" believed.
        tries: Lookups of this attempt that failed or were undecided so far.
        settles_in_s: Seconds until "absent" may be believed of it, ``settle_ms`` included; 0: now.
    """

    call: OpenCallRow
    owner_gone: bool
    overdue: bool
    tries: int
    settles_in_s: float = 0.0


class ReconcilerStore(Protocol):
    """What the reconciler reads and leases. It never holds a lock while it looks something up."""

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """Lease dangling LOOKUP and MANUAL calls whose owner is gone or whose time is over, and commit.

        A call that somebody else has leased, or whose lease says "not before", is left alone; and so is one of a run
        that is held back as a whole (an error, a version, an unknown agent, a budget): its verdict could not be used.
        A run that is being cancelled uses it, held or not: by its status it is ``running`` while a call of it is open.

        Raises:
            StoreUnavailable: Try again.
        """
        ...

    async def postpone(self, call: OpenCallRow, holder: str, delay_s: float, tries: int) -> None:
        """Let nobody look at this attempt again before ``delay_s`` seconds; remember the tries."""
        ...

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """As in ``Snapshots``."""
        ...


class Queries(Protocol):
    """What clients ask."""

    async def runs(self, *, status: str | None, agent: str | None, limit: int) -> list[RunRow]:
        """Newest first."""
        ...

    async def run(self, run_id: str) -> RunRow | None:
        """One run."""
        ...

    async def waits(self, run_id: str | None = None) -> list[WaitRow]:
        """Open waits, oldest first."""
        ...

    async def partition(self, partition: int) -> PartitionRow | None:
        """How far the compactor has come."""
        ...

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """As in ``Snapshots``."""
        ...

    async def describe(self) -> dict[str, Any]:
        """Server version, schema, migrations applied: for ``runfold check``."""
        ...
