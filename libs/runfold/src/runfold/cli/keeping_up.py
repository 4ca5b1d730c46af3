"""Whether the services keep up: what waits in Kafka for executors and compactor, and whether it moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.offsets import Offsets
from runfold.cli.finding import Finding
from runfold.cli.words import counted
from runfold.core.positions import Position
from runfold.ports.store import PartitionRow, Queries
from runfold.ports.topics import Topics

# A compactor commits once a second at least, and an executor takes an input at once.
_MOVES_S: Final = 3.0
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition at a moment.

    Attributes:
        end: Of its log.
        applied: Offset of the next record of its log that the tables will have.
        settled: How many inputs have their record in the tables.
        waiting: How many have none.
    """

    end: int
    applied: int
    settled: int
    waiting: int

    @property
    def unfolded(self) -> int:
        """How many records of the log the tables lack."""
        return max(0, self.end - self.applied)


async def keeping_up(config: KafkaConfig, topics: Topics, partitions: int, queries: Queries) -> list[Finding]:
    """Look, and where something waits look again.

    Raises:
        KafkaUnavailable, StoreUnavailable: Try again.
    """
    offsets = Offsets(config)
    first = second = await _look(offsets, topics, partitions, queries)
    if any(each.unfolded or each.waiting for each in first):
        await asyncio.sleep(_MOVES_S)
        second = await _look(offsets, topics, partitions, queries)
    return judged(first, second)


async def _look(offsets: Offsets, topics: Topics, partitions: int, queries: Queries) -> list[Standing]:
    """Ask Kafka first: what the tables have meanwhile is no delay."""
    log = await offsets.ends(topics.log, partitions)
    inputs = {topic: await offsets.ends(topic, partitions) for topic in topics.inputs}
    found = []
    for partition in range(partitions):
        row = await queries.partition(partition)
        found.append(_standing(row, log[partition], {topic: ends[partition] for topic, ends in inputs.items()}))
    return found


def _standing(row: PartitionRow | None, end: int, inputs: Mapping[str, int]) -> Standing:
    if row is None:
        return Standing(end, applied=0, settled=0, waiting=sum(inputs.values()))
    settled = sum(_settled(row.positions.of(topic), upto) for topic, upto in inputs.items())
    return Standing(end, row.applied, settled, sum(inputs.values()) - settled)


def _settled(position: Position, end: int) -> int:
    """How many inputs below ``end`` are settled."""
    return min(position.next, end) + sum(offset < end for offset in position.above)


def judged(first: Sequence[Standing], second: Sequence[Standing]) -> list[Finding]:
    """Compare two looks; what the tables lack cannot be said of the inputs that it may settle."""
    pairs = list(enumerate(zip(first, second, strict=True)))
    behind = {
        partition: now.unfolded for partition, (then, now) in pairs if then.unfolded and now.applied == then.applied
    }
    untaken = {
        partition: now.waiting
        for partition, (then, now) in pairs
        if then.waiting and not now.unfolded and (now.settled, now.end) == (then.settled, then.end)
    }
    return [_of_compactor(behind, sum(now.unfolded for now in second)), _of_executors(untaken)]


def _of_compactor(behind: Mapping[int, int], unfolded: int) -> Finding:
    if behind:
        records = counted(sum(behind.values()), "record")
        return Finding(
            "compactor",
            "wrong",
            f"the tables lack {records} of the log, {_named(behind)}, and none came within {_MOVES_S:g} s",
            "start a snapshot compactor, or read what its log says",
        )
    if unfolded:
        return Finding("compactor", "ok", f"{counted(unfolded, 'record')} of the log on the way to the tables")
    return Finding("compactor", "ok", "the tables have the whole log")


def _of_executors(untaken: Mapping[int, int]) -> Finding:
    if untaken:
        # A note: what a transaction has left at the end of a topic is an offset without an input.
        inputs = counted(sum(untaken.values()), "input")
        return Finding(
            "executors",
            "note",
            f"nobody has taken {inputs} within {_MOVES_S:g} s, {_named(untaken)}",
            "start a step executor, or read what its log says; the end of a producer's transaction counts as an input",
        )
    return Finding("executors", "ok", "no input waits for long")


def _named(partitions: Mapping[int, int]) -> str:
    """Name partitions, the first of many."""
    named = ", ".join(str(partition) for partition in list(partitions)[:_NAMED])
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    return f"in partition{'' if len(partitions) == 1 else 's'} {named}{more}"
