"""Whether the services keep up: what waits in Kafka for executors and compactor, and whether it moves.

Nobody is asked who works: a service that does is seen by what it does. So where nothing waits, nothing is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from runfold.core.positions import Position
from runfold.ports.log import LogBounds, LogUnrecoverable, ReadableLog
from runfold.ports.store import Snapshots
from runfold.runtime.identity import InputTopics, check_inputs, inspect

PATIENCE_S: Final = 15.0
"""What stands still for so long stands still: a group's session (10 s) and a take-over are shorter."""
_AGAIN_S: Final = 1.0
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Look:
    """One partition at a moment.

    Attributes:
        end: Of its log.
        applied: Offset of the next record of its log that the tables will have.
        settled: How many inputs have their record in the tables.
        waiting: How many that exist have none.
        damage: Why log or inputs are not those that were recorded, and the mend; all else is 0 then.
    """

    end: int = 0
    applied: int = 0
    settled: int = 0
    waiting: int = 0
    damage: str | None = None


@dataclass(slots=True)
class Verdict:
    """What was seen of all partitions.

    Attributes:
        damaged: Partition -> why, and the mend.
        unfolded: Partition -> records of its log that the tables lack, of which none came in time.
        untaken: Partition -> inputs that nobody took in time.
        unknown: Partitions with inputs of which nothing can be said, since the tables may lack their records.
    """

    damaged: dict[int, str] = field(default_factory=dict)
    unfolded: dict[int, int] = field(default_factory=dict)
    untaken: dict[int, int] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)


async def keeping_up(
    log: ReadableLog,
    inputs: InputTopics,
    store: Snapshots,
    partitions: int,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Verdict:
    """Look at every partition, and as long as something waits and does not move, again.

    Raises:
        LogUnavailable, StoreUnavailable: Try again.
    """
    room = asyncio.Semaphore(_AT_ONCE)

    async def look_at(partition: int) -> Look:
        async with room:
            return await look(partition, log, inputs, store)

    first = await asyncio.gather(*map(look_at, range(partitions)))
    verdict = judged(first, first)
    looks = int(PATIENCE_S / _AGAIN_S)
    while looks and (verdict.unfolded or verdict.untaken or verdict.unknown):
        looks -= 1
        await sleep(_AGAIN_S)
        verdict = judged(first, await asyncio.gather(*map(look_at, range(partitions))))
    return verdict


async def look(partition: int, log: ReadableLog, inputs: InputTopics, store: Snapshots) -> Look:
    """Look at one partition: first at the tables, so that what comes meanwhile waits rather than being overlooked.

    Raises:
        LogUnavailable, StoreUnavailable: Try again.
    """
    row = await store.partition(partition)
    try:
        if row is None:
            end, topics = (await log.bounds(partition)).end, await inputs.identities()
        else:
            end, topics = (await inspect(row, log, store)).end, await check_inputs(row, inputs)
    except LogUnrecoverable as error:
        return Look(damage=str(error))
    settled = waiting = 0
    for topic in topics:
        position = Position() if row is None else row.positions.of(topic)
        counted = _count(position, await inputs.bounds(topic, partition))
        settled, waiting = settled + counted[0], waiting + counted[1]
    return Look(end, 0 if row is None else row.applied, settled, waiting)


def _count(position: Position, bounds: LogBounds) -> tuple[int, int]:
    """Count the inputs that are settled, and those that exist and are not."""
    above = sum(position.next <= offset < bounds.end for offset in position.above)
    start = max(position.next, bounds.begin)
    there = sum(start <= offset < bounds.end for offset in position.above)
    return position.next + above, bounds.end - start - there


def judged(first: Sequence[Look], last: Sequence[Look]) -> Verdict:
    """Compare two looks, the same one twice if need be; who did something in between works."""
    verdict = Verdict()
    for partition, (then, now) in enumerate(zip(first, last, strict=True)):
        if now.damage is not None:
            verdict.damaged[partition] = now.damage
            continue
        if then.applied < then.end and now.applied == then.applied:
            verdict.unfolded[partition] = now.end - now.applied
        if then.waiting and (now.settled, now.end) == (then.settled, then.end):
            if now.applied < now.end:
                verdict.unknown.append(partition)
            else:
                verdict.untaken[partition] = now.waiting
    return verdict
