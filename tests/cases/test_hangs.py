"""Cases of docs/cases.md: tools that take longer than anything else, and tools that never end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import Recovery, ToolContext
from runfold.core.events import ToolReturned
from runfold.core.state import Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import one_tool_app, requests
from tests.runtime.book import KeyedBook


@pytest.mark.parametrize("recovery", [Recovery.RERUN, Recovery.KEYED, Recovery.LOOKUP, Recovery.MANUAL])
def test_a_tool_outlasts_sessions_and_leases(recovery: Recovery) -> None:
    """Called once, one ``tool_returned``, and nobody takes its owner for dead.

    Two and a half minutes in one call: a session is 10 s, a lease and the poll interval are 60 s.
    """
    book = KeyedBook()

    async def act(ctx: ToolContext[None]) -> str:
        await asyncio.sleep(150)
        return str(book.apply(ctx.idempotency_key, "done"))

    async def look(_: ToolContext[None]) -> Any:
        raise AssertionError("its time is not over: nobody may ask")

    async def main() -> None:
        lookup = look if recovery is Recovery.LOOKUP else None
        app = one_tool_app(recovery, act, lookup=lookup, timeout=200.0)
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: book.effects["r1:2"] == 1)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert [attempt for attempt, _ in requests(cluster)] == [1]
            assert cluster.types("r1").count("ToolReturned") == 1
            assert book.effects == {"r1:2": 1}

    run_virtual(main())


def test_an_executor_hangs_in_a_tool() -> None:
    """It cannot even be cancelled: the reconciler asks at the deadline, and the run goes on with what it found."""
    book = KeyedBook()
    released = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        result = str(book.apply(ctx.idempotency_key, "T-1"))
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:  # what a client with a bare ``except`` does
                continue
        return result

    async def look(ctx: ToolContext[None]) -> Any:
        return book.results[ctx.idempotency_key]

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, act, lookup=look, timeout=30.0)
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: book.effects["r1:2"] == 1)
            began = asyncio.get_running_loop().time()
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            # time-out and grace, then a scan, a commit and a lookup
            assert 35 <= asyncio.get_running_loop().time() - began <= 40
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert returned.source == "reconciled"
            assert book.effects == {"r1:2": 1}
            released.set()
            await asyncio.sleep(60)
            assert cluster.types("r1").count("ToolReturned") == 1

    run_virtual(main())
