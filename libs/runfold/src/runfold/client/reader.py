"""Reading runs out of the log: what happened, what comes, and what became of an input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from runfold.client.errors import RunNotFoundError
from runfold.client.scan import Logged, Place, Scan, Start
from runfold.codec.log import type_name
from runfold.core.events import Event, InputSettled, RunCancelled, RunCompleted, RunFailed, Settlement
from runfold.core.partitioning import partition_of
from runfold.ports.log import Log, LogFollower, LogIdentity, LogRecord
from runfold.ports.publisher import Published
from runfold.ports.store import Queries
from runfold.runtime.identity import check_identity

BATCH = 500
_WAIT_S = 1.0
ENDINGS = (RunCompleted, RunFailed, RunCancelled)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A valid event with its place in the log."""

    partition: int
    offset: int
    event: Event


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an input.

    Attributes:
        outcome: ``accepted`` (it caused an event), ``duplicate``, ``dead``, ``stale`` or ``forwarded``.
        event: For an accepted one, the type of the event that it caused; ``seq``: of that event.
        reason, detail: For a dead one: for machines; for a person, with the mend.
    """

    outcome: str
    event: str | None = None
    seq: int | None = None
    reason: str | None = None
    detail: str | None = None

    @property
    def is_dead(self) -> bool:
        """Whether it was refused."""
        return self.outcome == Settlement.DEAD.value


class RunReader:
    """Reads runs out of the log, with what Postgres knows as the place to begin.

    Args:
        partitions: Of the log.
    """

    def __init__(self, log: Log, queries: Queries, partitions: int) -> None:
        self._log = log
        self._queries = queries
        self._partitions = partitions
        self._identity: LogIdentity | None = None

    def partition(self, run_id: str) -> int:
        """Give the partition of a run."""
        return partition_of(run_id, self._partitions)

    async def place(self, run_id: str) -> Place:
        """Ask Postgres where a run is; the partition before the run, so that nothing falls between the two.

        Raises:
            LogUnrecoverable: Postgres is about another log than this one.
        """
        row = await self._queries.partition(self.partition(run_id))
        if row is not None:
            if self._identity is None:
                self._identity = await self._log.identity()
            check_identity(row, self._identity)
        return Place(row, await self._queries.run(run_id))

    async def events(self, run_id: str) -> AsyncGenerator[LoggedEvent, None]:
        """Give the valid events of a run that exist now.

        Raises:
            RunNotFoundError: There is none.
        """
        place = await self.place(run_id)
        found = False
        async with aclosing(self._history(run_id, place)) as history:
            async for event in history:
                found = True
                yield event
        if not found:
            raise RunNotFoundError(run_id)

    async def newer(self, run_id: str, place: Place) -> AsyncGenerator[LoggedEvent, None]:
        """Give the valid events that exist now and that ``place`` does not cover."""
        partition = self.partition(run_id)
        bounds = await self._log.bounds(partition)
        start = place.tail(bounds.begin)
        async with aclosing(self._range(partition, start.offset, bounds.end)) as records:
            async for event in _events(records, Scan(run_id, partition, start)):
                yield event

    async def follow(self, run_id: str, place: Place, *, from_start: bool) -> AsyncGenerator[LoggedEvent, None]:
        """Give valid events, and wait for more, until the run has ended; waits for a run that does not exist yet.

        Args:
            run_id: The run.
            place: What ``place`` gave.
            from_start: From its first event on; else only those that ``place`` does not cover.
        """
        partition = self.partition(run_id)
        start = place.tail((await self._log.bounds(partition)).begin)
        if from_start and place.run is not None:
            async with aclosing(self._history(run_id, place)) as history:
                async for event in history:
                    yield event
                    start = _behind(start, event)
                    if isinstance(event.event, ENDINGS):
                        return
        scan = Scan(run_id, partition, start)
        async with self._following(partition, start.offset) as follower:
            while True:
                for record in await follower.next(BATCH, _WAIT_S):
                    found = _event(scan.admit(record))
                    if found is not None:
                        yield found
                        if isinstance(found.event, ENDINGS):
                            return

    async def settled(self, run_id: str, place: Place, published: Published, timeout_s: float) -> Settled | None:
        """Wait for the valid record that settles an input; None if there is none in time.

        Args:
            run_id: The run that the input is about.
            place: What ``place`` gave *before* the input was produced.
            published: Where the input stands.
            timeout_s: Seconds.
        """
        partition = self.partition(run_id)
        try:
            async with asyncio.timeout(timeout_s):
                start = place.tail((await self._log.bounds(partition)).begin)
                scan = Scan(run_id, partition, start)
                async with self._following(partition, start.offset) as follower:
                    while True:
                        for record in await follower.next(BATCH, _WAIT_S):
                            logged = scan.admit(record)
                            if logged is not None and _settles(logged, published):
                                return _settlement(logged)
        except TimeoutError:
            return None

    async def _history(self, run_id: str, place: Place) -> AsyncGenerator[LoggedEvent, None]:
        partition = self.partition(run_id)
        if place.run is None or place.run.parked is not None:
            async for event in self.newer(run_id, place):
                yield event
            return
        first = place.first(0)
        known = self._range(partition, first.offset, place.run.last_offset + 1)
        async for event in _events(known, Scan(run_id, partition, first)):
            yield event
        async for event in self.newer(run_id, place):
            yield event

    async def _range(self, partition: int, start: int, end: int) -> AsyncGenerator[LogRecord, None]:
        while start < end:
            records = await self._log.read(partition, start, end, BATCH)
            for record in records:
                yield record
            start = records[-1].offset + 1

    @asynccontextmanager
    async def _following(self, partition: int, start: int) -> AsyncIterator[LogFollower]:
        follower = await self._log.follow(partition, start)
        try:
            yield follower
        finally:
            await follower.close()


async def _events(records: AsyncGenerator[LogRecord, None], scan: Scan) -> AsyncGenerator[LoggedEvent, None]:
    async for record in records:
        event = _event(scan.admit(record))
        if event is not None:
            yield event


def _event(logged: Logged | None) -> LoggedEvent | None:
    if logged is None or isinstance(logged.body, InputSettled):
        return None
    return LoggedEvent(logged.partition, logged.offset, logged.body)


def _behind(start: Start, event: LoggedEvent) -> Start:
    """Go on behind an event that was given: nothing up to it is given again."""
    if event.offset < start.offset:
        return Start(start.offset, start.epoch, event.event.seq + 1, event.offset, start.positions)
    return Start(event.offset + 1, event.event.epoch, event.event.seq + 1, event.offset)


def _settles(logged: Logged, published: Published) -> bool:
    cause = logged.body.cause
    where = None if cause is None else (cause.topic, cause.partition, cause.offset)
    return where == (published.topic, published.partition, published.offset)


def _settlement(logged: Logged) -> Settled:
    body = logged.body
    if isinstance(body, InputSettled):
        return Settled(body.outcome.value, reason=body.reason, detail=body.detail)
    return Settled("accepted", event=type_name(type(body)), seq=body.seq)
