"""Sleeping that a stop ends."""

from __future__ import annotations

import asyncio


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleep; a stop, now or meanwhile, ends it at once."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
