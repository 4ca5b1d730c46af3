"""What seeds have shown, played directly."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from runfold.sdk.threads import Threads


async def test_a_wait_for_an_earlier_thread_that_is_given_up_leaves_no_forgotten_error() -> None:
    """Seed 1: the next attempt timed out while it waited for the earlier thread, which then failed: nobody's error."""
    forgotten: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
    threads, may_end = Threads(), threading.Event()

    await _give_up(threads, may_end)
    for thread in threading.enumerate():
        if thread.name == "runfold r:1":
            await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    gc.collect()
    assert forgotten == []


async def _give_up(threads: Threads, may_end: threading.Event) -> None:
    def fail() -> None:
        may_end.wait(10)
        raise RuntimeError("failed behind the effect")

    first = asyncio.get_running_loop().create_task(threads.run("r:1", fail))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await threads.returned("r:1")
    may_end.set()
    with pytest.raises(RuntimeError):
        await first
