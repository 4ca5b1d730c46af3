"""How a snapshot is stored: plain rows, written by ``codec.snapshots`` and carried by ``ports.store``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One snapshot of one run.

    Attributes:
        seq, offset: Of the last event it covers.
        next_offset, next_epoch: Of the run's next valid event and the epoch in force there; None while there is none.
        message_count: Transcript entries it refers to, which stand in chunks.
        state: Avro bytes of the state without its transcript.
        digest: sha256 in hex, as codec.snapshots computes it.
    """

    run_id: str
    seq: int
    offset: int
    next_offset: int | None
    next_epoch: int | None
    fold_version: int
    message_count: int
    state: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """Transcript entries [first_index, first_index + count) of one run; immutable."""

    run_id: str
    first_index: int
    count: int
    data: bytes
