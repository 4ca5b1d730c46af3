"""Numbers of the compactor, and what it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactorSettings:
    """How often and how much.

    Attributes:
        dead_topic, notifications_topic: Full names.
        snapshot_every: K: events of one run after which it is snapshotted.
        snapshot_after_s: T: seconds after which events without a snapshot get one.
        batch_records: Log records folded in one transaction, at most.
        batch_bytes: Bytes of log records folded in one transaction, at most, but at least one record.
        batch_runs: Runs that are written in one transaction for another reason than an event of theirs, at most.
        linger_s: Seconds that a batch waits for more records, so that a slow log is not one transaction per record.
        commit_every_s: Seconds between two commits of a busy partition, unless a batch is full: what changes again and
            again meanwhile is written once. The first record after a pause waits ``linger_s`` only.
        commit_share: The part of the time, 0 to 1, that commits may take; after one that takes longer, the next comes
            later.
        commit_interval_max_s: Seconds beyond which two commits are not drawn apart for that.
        poll_s: Seconds that reading waits for the first record; so long a stop may take.
        look_every_s: Seconds without a commit after which it looks whether the partition's row is still its own.
        drain_s: Seconds that a batch in hand may take when the partition is revoked.
    """

    dead_topic: str
    notifications_topic: str
    snapshot_every: int = 50
    snapshot_after_s: float = 30.0
    batch_records: int = 2000
    batch_bytes: int = 8 << 20
    batch_runs: int = 500
    linger_s: float = 0.01
    commit_every_s: float = 0.25
    commit_share: float = 0.05
    commit_interval_max_s: float = 1.0
    poll_s: float = 0.5
    look_every_s: float = 2.0
    drain_s: float = 20.0


@dataclass(slots=True)
class PartitionStatus:
    """How one partition fares; changed in place by its task, read by metrics and health.

    Attributes:
        applied: Offset of the next log record to fold, as committed; ``end``: the log's end when last asked.
        epoch: In force at ``applied``.
        void: Void records met by this process; ``parked``: runs in memory that cannot be folded.
        set_aside: Snapshots that could not be read, met by this process.
        commits, snapshots, notifications, dead: Written by this process.
        failures: Fresh starts since the last commit; ``problem``: the last reason, None once the store was read again.
        stopped: The log is not what was recorded of it: a person has to look, ``problem`` says at what.
    """

    partition: int
    applied: int = 0
    end: int = 0
    epoch: int = -1
    void: int = 0
    parked: int = 0
    set_aside: int = 0
    commits: int = 0
    snapshots: int = 0
    notifications: int = 0
    dead: int = 0
    failures: int = 0
    problem: str | None = None
    stopped: bool = False

    @property
    def lag(self) -> int:
        """Log records that are not applied yet, as far as is known."""
        return max(self.end - self.applied, 0)
