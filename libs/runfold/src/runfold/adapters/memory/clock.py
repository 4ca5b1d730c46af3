"""Time by the event loop, and chance by a seed: on a virtual event loop both are virtual."""

from __future__ import annotations

import asyncio
import random
from typing import Final

_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class LoopClock:
    """The event loop's time as a ``Clock``; needs a running loop.

    Args:
        start_ms: Wall clock, milliseconds since 1970, at second 0 of the loop's time.
    """

    def __init__(self, start_ms: int = _START_MS) -> None:
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Give the wall clock in milliseconds since 1970."""
        return self._start_ms + int(self.elapsed() * 1000)

    def elapsed(self) -> float:
        """Give the loop's time in seconds."""
        return asyncio.get_running_loop().time()


class SeededChance:
    """Chance that repeats itself: the same seed gives the same numbers and nonces."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose, nothing secret

    def jitter(self) -> float:
        """Give a number in [0, 1)."""
        return self._random.random()

    def nonce(self) -> str:
        """Give 32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"
