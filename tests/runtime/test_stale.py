"""What is stale: an acknowledgement that came too late, an owner behind a later claim, a cancelled run's call."""

from __future__ import annotations

import asyncio

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.core.events import PartitionClaimed, ToolCallRequested
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.book import KeyedBook


def test_a_stale_append_does_not_execute_what_another_owner_may_have_done() -> None:
    """P0 dies in a KEYED and a LOOKUP call; P1's request of the KEYED one is stale: the other waits for its verdict."""
    book = KeyedBook()

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
        async with Cluster.running(partitions=1) as cluster:
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start("r1", "a")
            await cluster.until(lambda: book.effects["r1:3"] == 1)
            p0.kill()
            log = FaultyLog(cluster.broker)
            log.trap = lambda record: isinstance(record, ToolCallRequested)
            await cluster.start_executor(app, "p1", log)
            await cluster.until(lambda: log.hold_acks)
            await asyncio.sleep(6)
            log.release()
            await cluster.until(lambda: cluster.types("r1").count("ToolReturned") == 1)
            assert book.effects["r1:3"] == 1
            cluster.start_reconciler(app)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert book.effects["r1:3"] == 1

    run_virtual(main())


def test_a_last_attempt_that_is_requested_again_waits_for_its_turn_too() -> None:
    """Two calls have lost their process twice. The first one's acknowledgement is stale: nobody runs beside it then."""
    begun: list[tuple[str, int]] = []
    at_work: set[str] = set()

    @tool(recovery=Recovery.KEYED)
    async def pay(ctx: ToolContext[None]) -> str:
        """Pay."""
        begun.append((ctx.run_id, ctx.attempt))
        if ctx.attempt < 3:
            await asyncio.Event().wait()
        at_work.add(ctx.run_id)
        assert len(at_work) == 1
        await asyncio.sleep(3.0)
        at_work.remove(ctx.run_id)
        return "paid"

    async def main() -> None:
        app = App([Agent("a", model=ScriptedModel([("pay", {}), "done"]), instructions="", tools=[pay])])
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start("r1", "a")
            await cluster.start("r2", "a")
            for attempt in (1, 2):
                process = await cluster.start_executor(app, f"p{attempt}")
                await cluster.until(lambda attempt=attempt: {("r1", attempt), ("r2", attempt)} <= set(begun))  # type: ignore[misc]
                process.kill()
            log = FaultyLog(cluster.broker)
            log.trap = lambda record: isinstance(record, ToolCallRequested)
            await cluster.start_executor(app, "p3", log)
            await cluster.until(lambda: log.hold_acks)
            await asyncio.sleep(6)
            log.release()
            for run_id in ("r1", "r2"):
                assert (await cluster.ended(run_id)).ended is Status.COMPLETED
            assert sorted(run_id for run_id, attempt in begun if attempt > 2) == ["r1", "r2"]
            assert max(attempt for _, attempt in begun) == 4

    run_virtual(main())


def test_an_idle_owner_notices_a_claim_that_landed_after_its_own() -> None:
    """Nothing is appended, so no gap shows it: the owner looks, and claims again."""

    async def main() -> None:
        app = App([Agent("a", model=ScriptedModel(["done"]), instructions="")])
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            log.hold_landing = True
            zombie = await cluster.start_executor(app, "p0", log)
            await cluster.until(lambda: log.held == 1)
            zombie.membership.kill()
            owner = await cluster.start_executor(app, "p1")
            await cluster.until(lambda: owner.executor._owners and owner.executor.ready)
            log.release()
            await asyncio.sleep(0.1)
            zombie.task.cancel()
            await asyncio.sleep(15)
            _, end = cluster.broker.bounds(TOPICS.log, 0)
            records = cluster.broker.slice(TOPICS.log, 0, 0, end)
            claims = [log_codec.decode(record.value or b"") for record in records]
            owners = [claim.owner for claim in claims if isinstance(claim, PartitionClaimed)]
            assert [name.split("-")[0] for name in owners] == ["p1", "p0", "p1"]

    run_virtual(main())


def test_a_resolve_of_a_cancelled_runs_call_in_doubt_is_refused() -> None:
    """The run has ended: its call in doubt is nobody's any more."""

    async def main() -> None:
        @tool(recovery=Recovery.MANUAL)
        async def act() -> str:
            """Fail."""
            raise RuntimeError("connection reset")

        app = App([Agent("a", model=ScriptedModel([("act", {}), "done"]), instructions="", tools=[act])])
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await cluster.until(lambda: cluster.records("r1")[1])
            assert [settled.reason for settled in cluster.records("r1")[1]] == ["not_open"]

    run_virtual(main())
