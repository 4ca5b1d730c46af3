"""A log client whose appends can be held back, lost, or acknowledged late, as a real one's are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.log import MemoryLog
from runfold.codec.log import decode
from runfold.core.events import LogRecordBody
from runfold.ports.log import AppendFailed, OnAck


class FaultyLog(MemoryLog):
    """The log of one process, with faults that a test switches on.

    Attributes:
        hold_landing: Appends wait before they reach the broker (a process paused before the send).
        hold_acks: Acknowledgements wait before they reach the process (a process paused before it handled them).
        ack_delay: Seconds that every acknowledgement takes.
        trap: Asked about each record that lands; when it says yes, that record's acknowledgement and all later ones
            are held, as if the process had been paused right there.
        watch: Told of each record that is about to land.
        lose: Asked about each record about to land; the first that it says yes to never lands, and fails.
        fates: For coming appends, in order: ``ok``, ``lost`` (never lands, fails), ``unknown`` (lands, fails).
    """

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.hold_landing = self.hold_acks = False
        self.ack_delay = self._last_due = 0.0
        self.fates: deque[str] = deque()
        self.trap: Callable[[LogRecordBody], bool] | None = None
        self.lose: Callable[[LogRecordBody], bool] | None = None
        self.watch: Callable[[LogRecordBody], None] = _nothing
        self._held_landings: deque[Callable[[], None]] = deque()
        self._acks: deque[Callable[[], None]] = deque()
        self._ripe = 0

    @property
    def held(self) -> int:
        """How many appends wait before the broker."""
        return len(self._held_landings)

    @property
    def held_acks(self) -> int:
        """How many acknowledgements wait before the process."""
        return len(self._acks)

    def release(self) -> None:
        """Let everything through, in order."""
        self.hold_landing = False
        while self._held_landings:
            self._held_landings.popleft()()
        self.hold_acks = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        if self.hold_landing:
            self._held_landings.append(lambda: self._land(partition, record, on_ack))
            return
        body = decode(record.value or b"")
        self.watch(body)
        if self.trap is not None and self.trap(body):
            self.trap, self.hold_acks = None, True
        fate = self.fates.popleft() if self.fates else "ok"
        if self.lose is not None and self.lose(body):
            self.lose, fate = None, "lost"
        if fate == "ok":
            super()._land(partition, record, on_ack)
        elif fate == "lost":
            self._acknowledge(partition, on_ack, AppendFailed("lost on the way"))
        else:
            super()._land(partition, record, _ignore)
            self._acknowledge(partition, on_ack, AppendFailed("the acknowledgement was lost"))

    def _acknowledge(self, _partition: int, on_ack: OnAck, outcome: int | AppendFailed) -> None:
        # In the order of the appends, whatever is switched when: whichever timer rings takes the first.
        loop = asyncio.get_running_loop()
        self._last_due = max(self._last_due, loop.time() + self.ack_delay)
        self._acks.append(lambda: on_ack(outcome))
        loop.call_at(self._last_due, self._ring)

    def _ring(self) -> None:
        self._ripe += 1
        self._deliver()

    def _deliver(self) -> None:
        while self._ripe and not self.hold_acks:
            self._ripe -= 1
            self._acks.popleft()()


def _nothing(_: LogRecordBody) -> None:
    """Nobody watches."""


def _ignore(_: int | AppendFailed) -> None:
    """Nobody hears of it."""
