"""An event loop on virtual time: when nothing is ready it does not sleep, it moves its clock to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Selects without waiting, and passes the time that it would have waited to the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: every task waits for another")
        self.now += max(0.0, timeout)
        return super().select(0)


class DeadlockError(Exception):
    """Virtual time cannot go on."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; threads and sockets have no place in it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T], limit_s: float = 3600.0) -> T:
    """Run on a fresh virtual loop; more than ``limit_s`` virtual seconds is a failure."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_limited(main, limit_s))


async def _limited(main: Coroutine[Any, Any, T], limit_s: float) -> T:
    async with asyncio.timeout(limit_s):
        return await main
