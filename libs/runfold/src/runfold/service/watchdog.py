"""The watchdog: a process whose event loop has not ticked for some seconds exits, so that its partitions move.

It counts its own wake-ups, not seconds: when the whole process was suspended, it has missed as many as the loop has,
and nothing is concluded from that.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

STALLED_S = 5.0
EXIT_STALLED = 70
_BEAT_S = 0.5


class Stall:
    """Counts the wake-ups of the watchdog that saw no tick of the loop in between."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._seen = -1
        self._missed = 0

    def wake(self, ticks: int) -> bool:
        """Take note of one wake-up; True once more than the allowed ones in a row saw the same ``ticks``."""
        self._missed = 0 if ticks != self._seen else self._missed + 1
        self._seen = ticks
        return self._missed > self._allowed


class Watchdog:
    """Watches the event loop that runs it, from a thread, while its block is entered.

    Args:
        on_stall: What to do, from the thread; by default the process exits at once with code 70.
    """

    def __init__(
        self,
        on_stall: Callable[[], None] | None = None,
        *,
        stalled_s: float = STALLED_S,
        beat_s: float = _BEAT_S,
    ) -> None:
        self._on_stall = on_stall or (lambda: _exit(stalled_s))
        self._allowed = max(1, round(stalled_s / beat_s))
        self._beat_s = beat_s
        self._ticks = 0
        self._over = threading.Event()
        self._next: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="runfold-watchdog", daemon=True)

    async def __aenter__(self) -> Self:
        self._tick()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._next is not None:
            self._next.cancel()

    def _tick(self) -> None:
        self._ticks += 1
        self._next = asyncio.get_running_loop().call_later(self._beat_s / 2, self._tick)

    def _watch(self) -> None:
        stall = Stall(self._allowed)
        while not self._over.wait(self._beat_s):
            if stall.wake(self._ticks):
                self._on_stall()
                return


def _exit(stalled_s: float) -> None:
    # Written by hand: the stalled thread may hold the lock of the logging module.
    said = {"level": "critical", "event": "event_loop_stalled", "exit_code": EXIT_STALLED, "stalled_s": stalled_s}
    os.write(2, json.dumps(said).encode() + b"\n")
    os._exit(EXIT_STALLED)
