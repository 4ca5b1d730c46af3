"""What a run has been told and has not handled yet: outcomes and moments first, then its inputs, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runfold.codec.input_types import CancelInput, Input, VerdictInput
from runfold.core.events import Cause
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import EffectKey, EffectOutcome

Action = Callable[[Batch], None]
"""Adds events to the run's next batch."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An input on its way to its run; ``cause`` is its place, with its explicit id or its origin."""

    cause: Cause
    input: Input


@dataclass(frozen=True, slots=True)
class Finished:
    """An effect has ended."""

    key: EffectKey
    outcome: EffectOutcome


@dataclass(frozen=True, slots=True)
class Due:
    """A moment has come."""

    action: Action


def _passes(given: Input) -> bool:
    """Whether an input does not wait behind one that is held."""
    return isinstance(given, CancelInput) or (isinstance(given, VerdictInput) and given.outcome == "found")


class Mailbox:
    """The mailbox of one run; its driver is the only one who takes from it."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrived] = deque()
        self._news: deque[Finished | Due] = deque()
        self._timers: set[asyncio.TimerHandle] = set()
        self._woken = asyncio.Event()
        self._held = False

    @property
    def has_news(self) -> bool:
        """Whether an outcome or a moment waits to be handled."""
        return bool(self._news)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be handled."""
        return not (self._arrivals or self._news)

    @property
    def has_timers(self) -> bool:
        """Whether something will come by itself."""
        return bool(self._timers)

    def arrive(self, arrived: Arrived) -> None:
        """Put an input in."""
        self._arrivals.append(arrived)
        self._woken.set()

    def finish(self, finished: Finished) -> None:
        """Put an outcome in."""
        self._news.append(finished)
        self._woken.set()

    def after(self, delay: float, action: Action) -> None:
        """Put an action in, ``delay`` seconds from now."""
        self._call_later(delay, lambda: self._news.append(Due(action)))

    def hold(self, arrived: Arrived, delay: float) -> None:
        """Put an input back in front, and give none out for ``delay`` seconds, except what may pass it."""
        self._arrivals.appendleft(arrived)
        self._held = True

        def release() -> None:
            self._held = False

        self._call_later(delay, release)

    def take_news(self) -> Finished | Due | None:
        """Take the next outcome or moment, if there is one."""
        return self._news.popleft() if self._news else None

    def take_arrival(self) -> Arrived | None:
        """Take the next input, if there is one.

        While one is held, only two kinds get past it. A cancel: nobody who wants a run to stop should wait for what
        would let it go on. A verdict "found": what is held says that a call did not happen, and is not believed yet
        just because somebody may still know better. What was held is judged after it, and finds the run as it is then.
        """
        if not self._held:
            return self._arrivals.popleft() if self._arrivals else None
        for index, arrived in enumerate(self._arrivals):
            if _passes(arrived.input):
                del self._arrivals[index]
                return arrived
        return None

    async def wait(self) -> None:
        """Wait until something was put in since the last wait."""
        await self._woken.wait()
        self._woken.clear()

    def close(self) -> None:
        """Let no timer ring any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _call_later(self, delay: float, ring: Callable[[], object]) -> None:
        def rung() -> None:
            self._timers.discard(handle)
            ring()
            self._woken.set()

        handle = asyncio.get_running_loop().call_later(max(0.0, delay), rung)
        self._timers.add(handle)
