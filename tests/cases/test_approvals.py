"""Cases of docs/cases.md: approvals at every moment, and runs that wait for longer than anything else lasts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.core.events import Interrupted, LogRecordBody, ModelResponded, Resumed
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import model_app, one_tool_app, settled
from tests.runtime.book import KeyedBook

DAY_S = 86_400.0


def _is_gate(record: LogRecordBody) -> bool:
    return isinstance(record, Interrupted) and record.reason == "awaiting_approval"


def gated_app(book: KeyedBook, instructions: str = "v1") -> App:
    """An agent that publishes once, behind a gate."""

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def publish(ctx: ToolContext[None]) -> str:
        """Publish."""
        return str(book.apply(ctx.idempotency_key, "published"))

    model = ScriptedModel([("publish", {}), "done"])
    return App([Agent("a", model=model, instructions=instructions, tools=[publish])])


async def _assert_consumed_once(cluster: Cluster, book: KeyedBook) -> None:
    assert (await cluster.ended("r1")).ended is Status.COMPLETED
    assert [event.wait_id for event in cluster.events("r1") if isinstance(event, Resumed)] == ["r1:2"]
    assert book.effects == {"r1:3": 1}


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("held", ["before the broker", "before the process", "and the acknowledgement is lost"])
def test_an_approval_arrives_while_its_gate_is_being_appended(held: str, times: int) -> None:
    """Its gate is on its way, or durable and not yet known of: the approval waits for it, and is consumed once."""
    book = KeyedBook()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            process = await cluster.start_executor(gated_app(book), log=log)
            await cluster.until(lambda: process.executor.ready)
            if held == "before the broker":
                log.watch = lambda record: setattr(log, "hold_landing", isinstance(record, ModelResponded))
            else:
                log.trap = _is_gate
            await cluster.start("r1", "a")
            if held == "before the broker":
                await cluster.until(lambda: log.held > 0)
                assert "Interrupted" not in cluster.types("r1")
            else:
                await cluster.until(lambda: log.hold_acks)
                assert cluster.types("r1")[-1] == "Interrupted"
            log.watch = lambda _: None
            offsets = [await cluster.approve("r1", 2) for _ in range(times)]
            await asyncio.sleep(1)
            assert "Resumed" not in cluster.types("r1")
            if held == "and the acknowledgement is lost":
                process.kill()
                await cluster.start_executor(gated_app(book), "p1")
            else:
                log.release()
            await _assert_consumed_once(cluster, book)
            for offset in offsets[1:]:
                assert (await settled(cluster, "r1", offset, TOPICS.approvals)).outcome == "duplicate"

    run_virtual(main())


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("later_s", [0.0, 0.01, 7.0, 3 * DAY_S], ids=["at once", "soon", "later", "days later"])
def test_an_approval_arrives_after_its_gate(later_s: float, times: int) -> None:
    """Right after, or when the run has long left memory: consumed once; a second one has no effect."""
    book = KeyedBook()

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            compactor, process = cluster.start_compactor(), await cluster.start_executor(gated_app(book))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            if later_s > 60:
                await asyncio.sleep(60)
                await process.stop()  # a paused run is no process
                await compactor.stop()
                await asyncio.sleep(later_s)
                cluster.start_compactor()
                await cluster.start_executor(gated_app(book))
            else:
                await asyncio.sleep(later_s)
            offsets = [await cluster.approve("r1", 2) for _ in range(times)]
            await _assert_consumed_once(cluster, book)
            for offset in offsets[1:]:
                assert (await settled(cluster, "r1", offset, TOPICS.approvals)).outcome == "duplicate"

    run_virtual(main(), 4 * DAY_S)


async def _raise(_: ToolContext[None]) -> str:
    raise RuntimeError("connection reset")


async def _reach(cluster: Cluster, reason: str) -> None:
    """Bring a run to a wait of this kind."""
    apps: dict[str, App] = {
        "awaiting_approval": gated_app(KeyedBook()),
        "indeterminate": one_tool_app(Recovery.MANUAL, _raise),
        "error": model_app(ValueError("no")),
        "unknown_agent": model_app("x", name="another"),
        "version_mismatch": gated_app(KeyedBook()),
    }
    process = await cluster.start_executor(apps[reason])
    cluster.start_reconciler(apps[reason])
    await cluster.start("r1", "a")
    if reason == "version_mismatch":
        await cluster.waiting("r1", "awaiting_approval")
        await process.stop()
        await cluster.start_executor(gated_app(KeyedBook(), "v2"))
        await cluster.approve("r1", 2)
    await cluster.waiting("r1", reason)


@pytest.mark.parametrize("reason", ["awaiting_approval", "indeterminate", "error", "unknown_agent", "version_mismatch"])
def test_an_interrupt_lasts_longer_than_every_time_out(reason: str) -> None:
    """An hour (a model has ten minutes) with all services running: not a record more, in any topic."""

    def ends(cluster: Cluster) -> dict[str, int]:
        return {topic: cluster.broker.bounds(topic, 0)[1] for topic in TOPICS.all}

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await _reach(cluster, reason)
            await asyncio.sleep(60)
            before, row = ends(cluster), cluster.database.runs["r1"]
            assert before[TOPICS.notifications] >= 1
            await asyncio.sleep(3600)
            assert ends(cluster) == before
            assert cluster.database.runs["r1"] == row

    run_virtual(main(), 10_000)


@pytest.mark.parametrize("is_early", [True, False], ids=["approved before the deploy", "approved after it"])
def test_interrupted_then_another_prompt_then_the_approval(*, is_early: bool) -> None:
    """The gate's decision is in the log within five seconds of both being there: the old prompt's run is refused."""
    book = KeyedBook()

    async def main() -> Any:
        async with Cluster.running(partitions=1) as cluster:
            old = await cluster.start_executor(gated_app(book, "v1"))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await asyncio.sleep(60)
            await old.stop()
            if is_early:
                await cluster.approve("r1", 2)
            new = await cluster.start_executor(gated_app(book, "v2"))
            if not is_early:
                await cluster.until(lambda: new.executor.ready)
                await asyncio.sleep(60)
                await cluster.approve("r1", 2)
            began = asyncio.get_running_loop().time()
            await cluster.waiting("r1", "version_mismatch")
            assert asyncio.get_running_loop().time() - began < 5
            refused = cluster.events("r1")[-1]
            assert isinstance(refused, Interrupted)
            assert b'"prompt"' in refused.detail.data  # type: ignore[union-attr]
            assert not book.effects

    run_virtual(main())
