"""Cases of docs/cases.md: approvals at every moment, and runs that wait for longer than anything else lasts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.core.events import Interrupted, LogRecordBody, ModelResponded, Resumed
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from tests.runtime.apps import model_app, one_tool_app, settled
from tests.runtime.faults import FaultyLog
from tests.runtime.system import TOPICS, Book, System
from tests.runtime.virtual import run_virtual

DAY_S = 86_400.0


def _is_gate(record: LogRecordBody) -> bool:
    return isinstance(record, Interrupted) and record.reason == "awaiting_approval"


def gated_app(book: Book, instructions: str = "v1") -> App:
    """An agent that publishes once, behind a gate."""

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def publish(ctx: ToolContext[None]) -> str:
        """Publish."""
        return str(book.apply(ctx.idempotency_key, "published"))

    model = ScriptedModel([("publish", {}), "done"])
    return App([Agent("a", model=model, instructions=instructions, tools=[publish])])


async def _assert_consumed_once(system: System, book: Book) -> None:
    assert (await system.ended("r1")).ended is Status.COMPLETED
    assert [event.wait_id for event in system.events("r1") if isinstance(event, Resumed)] == ["r1:2"]
    assert book.effects == {"r1:3": 1}


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("held", ["before the broker", "before the process", "and the acknowledgement is lost"])
def test_an_approval_arrives_while_its_gate_is_being_appended(held: str, times: int) -> None:
    """Its gate is on its way, or durable and not yet known of: the approval waits for it, and is consumed once."""
    book = Book()

    async def main() -> None:
        async with System.running(partitions=1) as system:
            log = FaultyLog(system.broker)
            process = await system.start_executor(gated_app(book), log=log)
            await system.until(lambda: process.executor.ready)
            if held == "before the broker":
                log.watch = lambda record: setattr(log, "hold_landing", isinstance(record, ModelResponded))
            else:
                log.trap = _is_gate
            await system.start("r1", "a")
            if held == "before the broker":
                await system.until(lambda: log.held > 0)
                assert "Interrupted" not in system.types("r1")
            else:
                await system.until(lambda: log.hold_acks)
                assert system.types("r1")[-1] == "Interrupted"
            log.watch = lambda _: None
            offsets = [await system.approve("r1", 2) for _ in range(times)]
            await asyncio.sleep(1)
            assert "Resumed" not in system.types("r1")
            if held == "and the acknowledgement is lost":
                process.kill()
                await system.start_executor(gated_app(book), "p1")
            else:
                log.release()
            await _assert_consumed_once(system, book)
            for offset in offsets[1:]:
                assert (await settled(system, "r1", offset, TOPICS.approvals)).outcome == "duplicate"

    run_virtual(main())


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("later_s", [0.0, 0.01, 7.0, 3 * DAY_S], ids=["at once", "soon", "later", "days later"])
def test_an_approval_arrives_after_its_gate(later_s: float, times: int) -> None:
    """Right after, or when the run has long left memory: consumed once; a second one has no effect."""
    book = Book()

    async def main() -> None:
        async with System.running(partitions=1, compacting=False) as system:
            compactor, process = system.start_compactor(), await system.start_executor(gated_app(book))
            await system.start("r1", "a")
            await system.waiting("r1", "awaiting_approval")
            if later_s > 60:
                await asyncio.sleep(60)
                await process.stop()  # a paused run is no process
                await compactor.stop()
                await asyncio.sleep(later_s)
                system.start_compactor()
                await system.start_executor(gated_app(book))
            else:
                await asyncio.sleep(later_s)
            offsets = [await system.approve("r1", 2) for _ in range(times)]
            await _assert_consumed_once(system, book)
            for offset in offsets[1:]:
                assert (await settled(system, "r1", offset, TOPICS.approvals)).outcome == "duplicate"

    run_virtual(main(), 4 * DAY_S)


async def _raise(_: ToolContext[None]) -> str:
    raise RuntimeError("connection reset")


async def _reach(system: System, reason: str) -> None:
    """Bring a run to a wait of this kind."""
    apps: dict[str, App] = {
        "awaiting_approval": gated_app(Book()),
        "indeterminate": one_tool_app(Recovery.MANUAL, _raise),
        "error": model_app(ValueError("no")),
        "unknown_agent": model_app("x", name="another"),
        "version_mismatch": gated_app(Book()),
    }
    process = await system.start_executor(apps[reason])
    system.start_reconciler(apps[reason])
    await system.start("r1", "a")
    if reason == "version_mismatch":
        await system.waiting("r1", "awaiting_approval")
        await process.stop()
        await system.start_executor(gated_app(Book(), "v2"))
        await system.approve("r1", 2)
    await system.waiting("r1", reason)


@pytest.mark.parametrize("reason", ["awaiting_approval", "indeterminate", "error", "unknown_agent", "version_mismatch"])
def test_an_interrupt_lasts_longer_than_every_time_out(reason: str) -> None:
    """An hour (a model has ten minutes) with all services running: not a record more, in any topic."""

    def ends(system: System) -> dict[str, int]:
        return {topic: system.broker.bounds(topic, 0)[1] for topic in TOPICS.all}

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await _reach(system, reason)
            await asyncio.sleep(60)
            before, row = ends(system), system.database.runs["r1"]
            assert before[TOPICS.notifications] >= 1
            await asyncio.sleep(3600)
            assert ends(system) == before
            assert system.database.runs["r1"] == row

    run_virtual(main(), 10_000)


@pytest.mark.parametrize("is_early", [True, False], ids=["approved before the deploy", "approved after it"])
def test_interrupted_then_another_prompt_then_the_approval(*, is_early: bool) -> None:
    """The gate's decision is in the log within five seconds of both being there: the old prompt's run is refused."""
    book = Book()

    async def main() -> Any:
        async with System.running(partitions=1) as system:
            old = await system.start_executor(gated_app(book, "v1"))
            await system.start("r1", "a")
            await system.waiting("r1", "awaiting_approval")
            await asyncio.sleep(60)
            await old.stop()
            if is_early:
                await system.approve("r1", 2)
            new = await system.start_executor(gated_app(book, "v2"))
            if not is_early:
                await system.until(lambda: new.executor.ready)
                await asyncio.sleep(60)
                await system.approve("r1", 2)
            began = asyncio.get_running_loop().time()
            await system.waiting("r1", "version_mismatch")
            assert asyncio.get_running_loop().time() - began < 5
            refused = system.events("r1")[-1]
            assert isinstance(refused, Interrupted)
            assert b'"prompt"' in refused.detail.data  # type: ignore[union-attr]
            assert not book.effects

    run_virtual(main())
