"""Rows with defaults, for the contract suite."""

from dataclasses import replace
from typing import Any

from runfold.core.events import Recovery, Version, WaitReason
from runfold.core.payload import Inline
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.core.stored import ChunkRow, SnapshotRow
from runfold.ports.store import Commit, OpenCallRow, PartitionRow, RunRow, WaitRow

_PARTITION = PartitionRow(3, 0, "cluster", "topic", 10, 4, 7, 2, Positions())
_RUN = RunRow(
    run_id="run",
    partition=3,
    agent="research",
    status=Status.RUNNING,
    step=2,
    seq=5,
    version=Version("r1", "p1", "t1", "openai:gpt-5", (("a", "1"), ("b", "2"))),
    usage={"input_tokens": 7},
    cost_nano_usd=12,
    unpriced_calls=1,
    unaccounted_calls=2,
    first_offset=1,
    first_epoch=0,
    last_offset=9,
    started_at=1000,
    updated_at=2000,
)
_SNAPSHOT = SnapshotRow("run", 5, 9, None, None, 1, 3, b"\x00state\xff", "digest")
_WAIT = WaitRow("run:3", "run", 3, 3, 6, WaitReason.AWAITING_APPROVAL, 3000, Inline(b"{}"))
_CALL = OpenCallRow("run", 2, 3, "research", "ticket", "call-1", Inline(b"{}"), 1, 4, Recovery.LOOKUP, 1000)


def partition(**changes: Any) -> PartitionRow:
    """Partition 3, never committed."""
    return replace(_PARTITION, **changes)


def run(run_id: str = "run", **changes: Any) -> RunRow:
    """A running run at seq 5."""
    return replace(_RUN, run_id=run_id, **changes)


def snapshot(run_id: str = "run", **changes: Any) -> SnapshotRow:
    """A snapshot at seq 5."""
    return replace(_SNAPSHOT, run_id=run_id, **changes)


def chunk(run_id: str = "run", first_index: int = 0, count: int = 3, data: bytes = b"\x00chunk\xff") -> ChunkRow:
    """The first three messages."""
    return ChunkRow(run_id, first_index, count, data)


def wait(**changes: Any) -> WaitRow:
    """An approval gate of ``run`` at step 3."""
    return replace(_WAIT, **changes)


def call(**changes: Any) -> OpenCallRow:
    """A LOOKUP call of ``run`` at step 2, requested in epoch 4, with a timeout of a second."""
    return replace(_CALL, **changes)


def commit(row: PartitionRow | None = None, **parts: Any) -> Commit:
    """A commit onto a row, by default the first one of partition 3."""
    return Commit(partition() if row is None else row, **parts)


def every_part() -> dict[str, Any]:
    """What a commit may write beside the partition's row, one of each kind."""
    return {
        "runs": [run()],
        "snapshots": [snapshot()],
        "chunks": [chunk()],
        "opened_waits": [wait()],
        "opened_calls": [call()],
        "rebuilt": ["run"],
        "unreadable": ["other"],
    }
