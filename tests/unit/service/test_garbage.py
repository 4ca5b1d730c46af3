"""What a service leaves to the garbage collector, and when."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from runfold.service.garbage import looked_through


class _Page:
    """Something large that a tool's exception holds by a cycle."""


@pytest.mark.parametrize("survived", range(3))
async def test_a_cycle_among_few_objects_is_found_before_the_threshold(survived: int) -> None:
    """However many looks it had survived while it was in use."""
    gc.disable()
    try:
        page = _Page()
        page.__dict__["itself"] = page
        gone = asyncio.Event()
        kept = weakref.ref(page, lambda _: gone.set())
        for generation in range(survived):
            gc.collect(generation)
        del page
        async with asyncio.timeout(60), looked_through(every_s=0.001):
            assert kept() is not None
            await gone.wait()
    finally:
        gc.enable()
