"""Trying again and again, for what may be away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runfold.core.policy import backoff
from runfold.ports.clock import Chance

_T = TypeVar("_T")
_CEILING_S = 5.0


async def persist(
    operation: Callable[[], Awaitable[_T]],
    away: type[Exception],
    chance: Chance,
    tell: Callable[[Exception, int], None],
) -> _T:
    """Await ``operation`` until it does not raise ``away``; waits 0.1 s and more, with jitter, in between.

    Args:
        operation: What is tried.
        away: The exception that means "try again later"; every other one is raised.
        chance: For the jitter.
        tell: Told of each failure, and how many there were before.
    """
    failures = 0
    while True:
        try:
            return await operation()
        except away as error:
            tell(error, failures)
            await asyncio.sleep(0.1 + backoff(0.2, failures, _CEILING_S, chance.jitter()))
            failures += 1
