"""The executor on in-memory stores and virtual time: the life of a run, and the recovery classes."""

from __future__ import annotations

import asyncio
from functools import partial

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.core.events import RunEvent, ToolCallRequested, ToolReturned, WaitReason, Why
from runfold.core.payload import Inline
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import one_tool_app
from tests.runtime.book import KeyedBook


def _app(script: list[object], *tools: object, **agent: object) -> App:
    return App([Agent("a", model=ScriptedModel(script), instructions="Do it.", tools=list(tools), **agent)])  # type: ignore[arg-type]


@tool(recovery=Recovery.RERUN)
async def read(ctx: ToolContext[None], name: str = "x") -> str:
    """Read something."""
    return f"{name} read at {ctx.step}"


def _steps(events: list[RunEvent]) -> list[tuple[str, int]]:
    return [(type(event).__name__, step) for event in events if (step := getattr(event, "step", None)) is not None]


def test_a_run_of_two_model_calls_and_a_tool_completes() -> None:
    """The simplest run: asked, read, answered; steps 1, 2, 3."""

    async def main() -> None:
        async with Cluster.running() as cluster:
            await cluster.start_executor(_app([("read", {"name": "page"}), "done"], read))
            await cluster.start("r1", "a", "hello")
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert cluster.types("r1") == [
                "RunStarted",
                "ModelCallRequested",
                "ModelResponded",
                "ToolCallRequested",
                "ToolReturned",
                "ModelCallRequested",
                "ModelResponded",
                "RunCompleted",
            ]
            assert state.step == 3
            assert state.usage == {"input_tokens": 20, "output_tokens": 10}

    run_virtual(main())


def test_an_approval_gate_stops_the_run_until_a_person_decides() -> None:
    """[read, publish (gate), read]: 2, gate 3, publish 4, read 5; the ungated calls run while the gate is open."""
    book = KeyedBook()

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def publish(ctx: ToolContext[None], body: str) -> str:
        """Publish."""
        return str(book.apply(ctx.idempotency_key, body))

    async def main() -> None:
        async with Cluster.running() as cluster:
            app = _app([[("read", {}), ("publish", {"body": "b"}), ("read", {})], "done"], read, publish)
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.until(lambda: cluster.types("r1").count("ToolReturned") == 2)
            await process.stop()
            assert not book.effects
            await cluster.approve("r1", 3)
            await cluster.start_executor(app)
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            requests = [event for event in cluster.events("r1") if isinstance(event, ToolCallRequested)]
            assert [(e.tool, e.step, e.approval_id) for e in requests] == [
                ("read", 2, None),
                ("read", 5, None),
                ("publish", 4, "r1:3"),
            ]
            assert book.effects == {"r1:4": 1}

    run_virtual(main())


def test_a_rejected_call_is_told_to_the_model_without_a_request() -> None:
    """A denial has its step, and no request."""

    @tool(recovery=Recovery.MANUAL, needs_approval=True)
    async def publish(body: str) -> str:
        """Publish."""
        raise AssertionError(body)

    async def main() -> None:
        async with Cluster.running() as cluster:
            await cluster.start_executor(_app([("publish", {"body": "b"}), "sorry"], publish))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            value = codec_inputs.encode_approval("r1", "r1:2", "rejected", "dana", "too early")
            await cluster.send(TOPICS.approvals, "r1", value)
            state = await cluster.ended("r1")
            returned = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert [(e.step, e.source, e.is_error) for e in returned] == [(3, "denied", True)]
            told = state.transcript[-2].payload
            assert isinstance(told, Inline)
            assert b"too early" in told.data

    run_virtual(main())


def test_bad_arguments_and_an_unknown_tool_go_back_to_the_model() -> None:
    """Neither is executed; each has its step and its error."""

    async def main() -> None:
        async with Cluster.running() as cluster:
            script: list[object] = [[("read", {"nome": 1}), ("rid", {})], "done"]
            await cluster.start_executor(_app(script, read))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            returned = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert [(e.step, e.source, e.is_error) for e in returned] == [(2, "invalid", True), (3, "invalid", True)]
            assert "ToolCallRequested" not in cluster.types("r1")

    run_virtual(main())


def test_a_killed_executor_repeats_no_recorded_completion_and_runs_a_keyed_call_again() -> None:
    """KEYED: the new owner requests attempt 2 of the same step and key, and the downstream sees one effect."""
    book = KeyedBook()
    hang = asyncio.Event()

    @tool(recovery=Recovery.KEYED)
    async def pay(ctx: ToolContext[None]) -> str:
        """Pay."""
        book.apply(ctx.idempotency_key, "paid")
        if ctx.attempt == 1:
            await hang.wait()
        return "paid"

    model = ScriptedModel([("pay", {}), "done"])
    app = App([Agent("a", model=model, instructions="", tools=[pay])])

    async def main() -> None:
        async with Cluster.running() as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: book.effects["r1:2"] == 1)
            process.kill()
            await cluster.start_executor(app)
            await cluster.ended("r1")
            requests = [event for event in cluster.events("r1") if isinstance(event, ToolCallRequested)]
            assert [(e.step, e.attempt, e.why, e.idempotency_key) for e in requests] == [
                (2, 1, Why.FIRST, "r1:2"),
                (2, 2, Why.TAKEOVER, "r1:2"),
            ]
            assert model.calls == {0: 1, 1: 1}
            assert len(book.results) == 1

    run_virtual(main())


def _has(calls: list[int], count: int) -> bool:
    return len(calls) == count


def test_three_attempts_lost_to_crashes_interrupt_the_run() -> None:
    """A run that kills its process cannot halt a partition: error, and a person's resume lets it try again."""
    calls: list[int] = []
    calm = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        if not calm.is_set():
            await asyncio.Event().wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            for crash in range(1, 4):
                process = await cluster.start_executor(app, f"p{crash}")
                if crash == 1:
                    await cluster.start("r1", "a")
                await cluster.until(partial(_has, calls, crash))
                process.kill()
            await cluster.start_executor(app, "p4")
            state = await cluster.waiting("r1", WaitReason.ERROR)
            assert len(calls) == 3
            calm.set()
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert len(calls) == 4

    run_virtual(main())
