"""Whether the log and the input topics are those that were recorded: asked before anything relies on them.

Nobody guesses: what does not fit is refused, with what was lost and the command that mends it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final, Protocol

from runfold.core.fence import HEADER
from runfold.ports.log import LogBounds, LogIdentity, LogRecord, LogUnrecoverable, ReadableLog
from runfold.ports.store import PartitionRow

REBUILDING: Final = "rebuilding"
"""Stands for the topic's id while ``runfold rebuild`` works on a partition: nobody else may use it."""

_NAMED_RUNS = 10
_MANUAL = "docs/disaster.md has the steps"


class InputTopics(Protocol):
    """What is asked of ``ports.inputs.Inputs``."""

    async def identities(self) -> Mapping[str, str]:
        """Topic ids by topic."""
        ...

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """What exists of a topic now."""
        ...


class KnownRuns(Protocol):
    """What is asked of ``ports.store.Snapshots``."""

    async def runs_from(self, partition: int, offset: int, limit: int) -> list[str]:
        """Ids of runs whose last event known to Postgres stands at ``offset`` or behind."""
        ...


def refilling(offset: int, topic_id: str) -> str:
    """Stand for an input topic's id while ``runfold rebuild`` uses up its settled offsets: nobody else may use it.

    Args:
        offset: Nothing that this topic holds from there on was ever handled.
        topic_id: Of the topic of which that is true.
    """
    return f"{REBUILDING}/{offset}/{topic_id}"


def unhandled_from(known: str, topic_id: str) -> int | None:
    """Read ``refilling``; None: it is an id, or was said of another topic."""
    word, _, said = known.partition("/")
    offset, _, of = said.partition("/")
    return int(offset) if (word, of) == (REBUILDING, topic_id) else None


def digest_of(record: LogRecord) -> str:
    """Give the digest of a log record, in hex: what a record in its place must have."""
    key = (record.key or "").encode()
    head = record.head or b""
    framed = b"%d %d %s" % (len(key), len(head), HEADER.encode())
    return hashlib.sha256(b"\0".join((b"runfold.record.1", framed, key, head, record.value))).hexdigest()


def check_identity(row: PartitionRow, identity: LogIdentity) -> None:
    """Compare which log this is with which one was recorded.

    Raises:
        LogUnrecoverable: It is another one.
    """
    where = f"log partition {row.partition}"
    if row.topic_id == REBUILDING:
        raise LogUnrecoverable(
            f"{where} is being rebuilt: let `runfold rebuild` come to its end, or run it again with the same options."
        )
    if (row.cluster_id, row.topic_id) != (identity.cluster_id, identity.topic_id):
        raise LogUnrecoverable(
            f"{where} is another log: Postgres knows cluster {row.cluster_id}, topic {row.topic_id}; this is cluster "
            f"{identity.cluster_id}, topic {identity.topic_id}. Point RUNFOLD_KAFKA_BOOTSTRAP and RUNFOLD_TOPIC_PREFIX "
            "at the right log, or RUNFOLD_POSTGRES_SCHEMA at the schema that belongs to this one; if the topic was "
            f"deleted and made again, its records are lost: `runfold rebuild --partition {row.partition} "
            f"--accept-loss` ({_MANUAL})."
        )


def check_log(row: PartitionRow, identity: LogIdentity, bounds: LogBounds) -> None:
    """Compare the log with what was recorded of it.

    Raises:
        LogUnrecoverable: With what was lost and how to repair it.
    """
    check_identity(row, identity)
    where = f"log partition {row.partition}"
    if bounds.begin > row.replay_from:
        raise LogUnrecoverable(
            f"{where} begins at {bounds.begin}, but records from {row.replay_from} on are needed: "
            f"{bounds.begin - row.replay_from} of them were deleted. Restore the topic from a backup{_or_accept(row)}"
        )
    if bounds.end < row.applied:
        raise LogUnrecoverable(_truncated(row, bounds.end))


async def inspect(row: PartitionRow, log: ReadableLog, store: KnownRuns, *, tail: bool = True) -> LogBounds:
    """Compare the log with what was recorded of it, the last record that was folded included.

    Args:
        row, log, store: What was recorded, of what, and who knows the runs.
        tail: Look at the last record, too; False: at identity and bounds alone, which costs no reading.

    Raises:
        LogUnrecoverable: With what was lost, the runs that are known to be affected, and how to repair it.
    """
    identity, bounds = await asyncio.gather(log.identity(), log.bounds(row.partition))
    try:
        check_log(row, identity, bounds)
        if tail:
            await _check_tail(row, log, bounds)
    except LogUnrecoverable as error:
        raise LogUnrecoverable(f"{error}{await _affected(row, store, identity, bounds)}") from error
    return bounds


async def check_inputs(row: PartitionRow, inputs: InputTopics) -> Mapping[str, str]:
    """Compare the input topics with those that the positions are about; gives the topics' ids.

    Raises:
        LogUnrecoverable: One was deleted and made again, or truncated, or is being rebuilt.
    """
    ids = await inputs.identities()
    all_bounds = await asyncio.gather(*(inputs.bounds(topic, row.partition) for topic in ids))
    for topic, known in sorted(row.input_ids.items()):
        found = ids.get(topic)
        if known.startswith(f"{REBUILDING}/"):
            raise LogUnrecoverable(
                f"input topic {topic} is being rebuilt in partition {row.partition}: let `runfold rebuild` come to its "
                "end, or run it again with the same options."
            )
        if found is not None and found != known:
            raise LogUnrecoverable(
                f"input topic {topic} is another one: its positions in partition {row.partition} are about topic id "
                f"{known}, this is {found}. It was deleted and made again: nothing of it is skipped or read twice in "
                f"silence. Restore it{_or_accept(row)}"
            )
    for topic, bounds in zip(ids, all_bounds, strict=True):
        settled = row.positions.next_of(topic)
        if bounds.end < settled:
            raise LogUnrecoverable(
                f"input topic {topic} ends at {bounds.end} in partition {row.partition}, but {settled} of its records "
                f"were settled: it was truncated. Restore it from a backup{_or_accept(row)}"
            )
    return ids


async def has_other_tail(row: PartitionRow, log: ReadableLog, bounds: LogBounds) -> bool:
    """Whether another record stands where the last one was applied."""
    if row.tail is None or not bounds.begin <= row.tail[0] < bounds.end:
        return False
    offset, digest = row.tail
    return digest_of((await log.read(row.partition, offset, offset + 1, 1))[0]) != digest


async def _affected(row: PartitionRow, store: KnownRuns, identity: LogIdentity, bounds: LogBounds) -> str:
    """Name the runs whose last known event is gone."""
    another = (row.cluster_id, row.topic_id) != (identity.cluster_id, identity.topic_id)
    if another or bounds.end >= row.applied:
        return ""
    runs = await store.runs_from(row.partition, bounds.end, _NAMED_RUNS + 1)
    if not runs:
        return ""
    more = " and more" if len(runs) > _NAMED_RUNS else ""
    return f" Runs that Postgres knows to have lost events: {', '.join(runs[:_NAMED_RUNS])}{more}."


async def _check_tail(row: PartitionRow, log: ReadableLog, bounds: LogBounds) -> None:
    if row.tail is not None and await has_other_tail(row, log, bounds):
        raise LogUnrecoverable(
            f"log partition {row.partition}: the record at {row.tail[0]} is not the one that was applied: the log "
            f"was truncated below {row.applied} and has grown again to {bounds.end}. Restore the topic from a backup"
            + _or_accept(row)
        )


def _truncated(row: PartitionRow, end: int) -> str:
    return (
        f"log partition {row.partition} ends at {end}, but {row.applied} records were applied: the log was truncated "
        f"by {row.applied - end} records or more, from {end} on. Restore the topic from a backup{_or_accept(row)}"
    )


def _or_accept(row: PartitionRow) -> str:
    return f", or accept the loss: `runfold rebuild --partition {row.partition} --accept-loss` ({_MANUAL})."
