"""Time and chance."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The clocks of one process; clocks of two machines are never compared."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970: for people, and for times that a person or a provider set."""
        ...

    def elapsed(self) -> float:
        """Seconds by a clock that never goes back and counts the time that the machine or process was suspended."""
        ...


class Chance(Protocol):
    """Randomness that decides nothing durable."""

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...

    def nonce(self) -> str:
        """A string that nobody else makes."""
        ...
