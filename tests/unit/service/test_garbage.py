"""What a service leaves to the garbage collector, and when."""

from __future__ import annotations

import asyncio
import gc
import weakref

from runfold.service.garbage import young_looked_through


class _Page:
    """Something large that a tool's exception holds by a cycle."""


async def test_a_cycle_among_few_objects_is_found_before_the_threshold() -> None:
    gc.disable()
    try:
        page = _Page()
        page.__dict__["itself"] = page
        gone = asyncio.Event()
        kept = weakref.ref(page, lambda _: gone.set())
        del page
        async with asyncio.timeout(10), young_looked_through(every_s=0.01):
            assert kept() is not None
            await gone.wait()
    finally:
        gc.enable()
