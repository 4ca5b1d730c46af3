"""Appends of one epoch, and the proof that it still holds.

A single writer's acknowledged offsets are contiguous, starting right behind its claim. At a gap the writer reads
the gap: records of no claim are a zombie's, void, and it goes on; any claim in it means that this epoch is over.
An offset *below* the expected one means that the log was truncated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from runfold.core.fence import HEADER, Head, Kind
from runfold.ports.clock import Clock
from runfold.ports.log import AppendFailed, Log, LogUnrecoverable, RecordTooLarge

_log = structlog.get_logger(__name__)

Encoded = tuple[str | None, bytes, bytes]
"""Key, header and value of one record."""


class EpochOver(Exception):
    """This epoch has ended: nothing more is done in it. The partition is claimed again while it is still assigned."""


class EpochWriter:
    """The one writer of a partition in one epoch.

    Args:
        epoch: Offset of the own claim.
        spawn: Starts the reading of a gap, as a task that somebody owns.

    Attributes:
        over: Resolves with the reason when the epoch ends; with ``LogUnrecoverable`` as its exception when the log
            is not what it was.
    """

    def __init__(
        self,
        log: Log,
        partition: int,
        epoch: int,
        clock: Clock,
        max_record: int,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.epoch = epoch
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._log = log
        self._partition = partition
        self._clock = clock
        self._max_record = max_record
        self._spawn = spawn
        self._expected = epoch + 1
        self._count = 0
        self._pending: deque[asyncio.Future[None] | None] = deque()
        self._held: deque[tuple[int, int]] | None = None

    def check_size(self, record: Encoded) -> None:
        """Refuse a record that could not be appended, before anything is changed for its sake.

        Raises:
            RecordTooLarge: With the size and the limit.
        """
        key, head, value = record
        size = len(key or "") + len(HEADER) + len(head) + len(value)
        if size > self._max_record:
            raise RecordTooLarge(f"a log record of {size} bytes is above the limit of {self._max_record}")

    async def append(self, records: list[Encoded]) -> float:
        """Append records as one unbroken batch and wait until the last is acknowledged, contiguously.

        Returns:
            When they were produced, in seconds of ``Clock.elapsed``: what freshness is counted from.

        Raises:
            EpochOver: Their outcome may be unknown; the replay of the next epoch tells.
        """
        produced_at = self._clock.elapsed()
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._produce(records, acknowledged)
        await acknowledged
        return produced_at

    def _produce(self, records: list[Encoded], acknowledged: asyncio.Future[None]) -> None:
        if self.over.done():
            raise EpochOver(self._reason())
        last = len(records) - 1
        for index, (key, head, value) in enumerate(records):
            try:
                self._log.append(self._partition, key, head, value, partial(self._acked, self._count))
            except RecordTooLarge as error:
                self.end(f"append failed: {error}")
                raise EpochOver(self._reason()) from error
            self._count += 1
            self._pending.append(acknowledged if index == last else None)

    @property
    def acknowledged_to(self) -> int:
        """Offset behind the last record that is known to stand in the log."""
        return self._expected

    async def look_behind(self, end: int, known: int) -> None:
        """Look for a claim behind the own records: an owner that appends nothing would never meet it at a gap.

        Args:
            end: Of the log, as it was asked before this call.
            known: What ``acknowledged_to`` said before that.
        """
        if end < known:
            self._end_truncated(f"it ends at {end}, after {known - 1} was acknowledged")
            return
        if self.over.done() or self._held is not None or self._pending or end <= self._expected:
            return  # what is in flight finds it out by itself
        self._held = deque()
        await self._read_gap(self._expected, end)

    def end(self, reason: str, error: BaseException | None = None) -> None:
        """End the epoch: everything in flight is of unknown outcome."""
        if self.over.done():
            return
        if error is None:
            self.over.set_result(reason)
        else:
            self.over.set_exception(error)
            self.over.exception()  # retrieved here too: the owner may be gone already
        for waiting in self._pending:
            if waiting is not None and not waiting.done():
                waiting.set_exception(EpochOver(reason))
                waiting.exception()
        self._pending.clear()

    def _reason(self) -> str:
        return str(self.over.exception() or self.over.result()) if self.over.done() else ""

    def _acked(self, number: int, result: int | AppendFailed) -> None:
        if self.over.done():
            return
        if isinstance(result, AppendFailed):
            self.end(f"append failed: {result}")
        elif self._held is not None:
            self._held.append((number, result))
        else:
            self._accept(number, result)

    def _accept(self, number: int, offset: int) -> None:
        if number != self._count - len(self._pending):
            # Nobody may take another's acknowledgement for its own.
            self.end(f"append {number} was acknowledged out of its turn: one before it was never answered")
            return
        if offset > self._expected:
            self._held = deque([(number, offset)])
            self._spawn(self._read_gap(self._expected, offset))
            return
        if offset < self._expected:
            self._end_truncated(f"an append was acknowledged at {offset}, after {self._expected - 1}")
            return
        self._expected += 1
        waiting = self._pending.popleft()
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _end_truncated(self, what: str) -> None:
        problem = (
            f"log partition {self._partition} was truncated: {what}. Stop all executors and restore the topic, or "
            f"accept the loss: `runfold rebuild --partition {self._partition} --accept-loss` (docs/disaster.md)."
        )
        self.end(problem, LogUnrecoverable(problem))

    async def _read_gap(self, start: int, end: int) -> None:
        try:
            while start < end:
                records = await self._log.read(self._partition, start, end, 1000)
                if any(Head.decode(record.head).kind is Kind.CLAIM for record in records):
                    self.end(f"another claim stands in [{start}, {end})")
                    return
                start = records[-1].offset + 1
        except Exception as error:  # noqa: BLE001 - whatever it is, ownership is not proven
            self.end(f"the gap up to {end} could not be read: {error}")
            return
        _log.warning("void_records_passed", partition=self._partition, epoch=self.epoch, upto=end)
        self._expected = end
        held, self._held = self._held or deque(), None
        while held and not self.over.done():
            self._acked(*held.popleft())
