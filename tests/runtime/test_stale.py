"""A stale acknowledgement concerns the requests of its own epoch only."""

from __future__ import annotations

import asyncio

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.core.events import ToolCallRequested
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from tests.runtime.faults import FaultyLog
from tests.runtime.system import Book, System
from tests.runtime.virtual import run_virtual


def test_a_stale_append_does_not_execute_what_another_owner_may_have_done() -> None:
    """P0 dies in a KEYED and a LOOKUP call; P1's request of the KEYED one is stale: the other waits for its verdict."""
    book = Book()

    async def main() -> None:
        @tool(recovery=Recovery.KEYED)
        async def keyed(ctx: ToolContext[None]) -> str:
            """Pay."""
            if ctx.attempt == 1:
                await asyncio.Event().wait()
            return "paid"

        @tool(recovery=Recovery.LOOKUP)
        async def look(ctx: ToolContext[None]) -> str:
            """Open a ticket."""
            book.apply(ctx.idempotency_key, "T-1")
            await asyncio.Event().wait()
            return "T-1"

        @look.lookup
        async def find(ctx: ToolContext[None]) -> str | Absent:
            """Find it."""
            found: str | Absent = book.results.get(ctx.idempotency_key, ABSENT)
            return found

        model = ScriptedModel([[("keyed", {}), ("look", {})], "done"])
        app = App([Agent("a", model=model, instructions="", tools=[keyed, look])])
        async with System.running(partitions=1) as system:
            p0 = await system.start_executor(app, "p0")
            await system.start("r1", "a")
            await system.until(lambda: book.effects["r1:3"] == 1)
            p0.kill()
            log = FaultyLog(system.broker)
            log.trap = lambda record: isinstance(record, ToolCallRequested)
            await system.start_executor(app, "p1", log)
            await system.until(lambda: log.hold_acks)
            await asyncio.sleep(6)
            log.release()
            await system.until(lambda: system.types("r1").count("ToolReturned") == 1)
            assert book.effects["r1:3"] == 1
            system.start_reconciler(app)
            assert (await system.ended("r1")).ended is Status.COMPLETED
            assert book.effects["r1:3"] == 1

    run_virtual(main())
