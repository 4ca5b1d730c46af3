"""The machine's clocks and its randomness."""

from __future__ import annotations

import random
import time
import uuid
from typing import Final

# Counts suspended time, as the contract wants; Linux has it. Elsewhere the monotonic clock is the nearest thing:
# macOS' stops while the machine sleeps, and so does every process that could act meanwhile.
_SUSPEND_AWARE: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        """Give the wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def elapsed(self) -> float:
        """Give seconds by a clock that never goes back and counts suspended time."""
        return time.clock_gettime(_SUSPEND_AWARE)


class SystemChance:
    """Randomness of the operating system, and a quick generator where nothing secret is drawn."""

    def jitter(self) -> float:
        """Give a number in [0, 1)."""
        return random.random()  # noqa: S311 - spreads retries, nothing secret

    def nonce(self) -> str:
        """Give 32 hex digits that nobody else makes."""
        return uuid.uuid4().hex
