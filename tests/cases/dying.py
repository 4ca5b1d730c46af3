"""A log client whose process dies with SIGKILL at a chosen moment after a chosen record has landed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.codec.log import decode
from runfold.core.events import LogRecordBody
from runfold.ports.log import OnAck
from runfold.testing.simulation.cluster import ExecutorNode
from runfold.testing.simulation.faulty_log import FaultyLog


class DyingLog(FaultyLog):
    """The log of one process that dies.

    Args:
        after: Asked about each record that has landed; the first that it says yes to is the process's last but for
            the turns.
        turns: How often its event loop still goes round; 0: what was pipelined behind that record is never sent.

    Attributes:
        process: Whom to kill; set by the test.
        is_dead: Whether it has died.
    """

    def __init__(self, broker: MemoryBroker, after: Callable[[LogRecordBody], bool], turns: int = 0) -> None:
        super().__init__(broker)
        self.process: ExecutorNode | None = None
        self.is_dead = False
        self._after = after
        self._left = turns
        self._is_due = False

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        super()._land(partition, record, on_ack)
        if not self._is_due and not self.hold_landing and self._after(decode(record.value or b"")):
            self._is_due = True
            self._go_round()

    def _go_round(self) -> None:
        if self._left > 0:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self._go_round)
            return
        # What is on its way to the broker is lost with the process.
        self.hold_landing = self.hold_acks = self.is_dead = True
        assert self.process is not None, "the test has not said whom to kill"
        kill_myself(self.process)


def kill_myself(process: ExecutorNode) -> None:
    """SIGKILL, from the process's own code: the group's timer belongs to the world, which lives on."""
    contextvars.Context().run(process.kill)
