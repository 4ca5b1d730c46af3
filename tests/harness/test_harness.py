"""The harness's methods, on pytest-asyncio's loop: the runtime is in a thread of its own, on virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.client import RunCancelledError, RunFailedError, RunNotFoundError
from runfold.core.decisions import Fail
from runfold.testing import Attempt, Harness, InputRefusedError, RunWaitsError, ScriptedModel
from tests.harness.agents import World, app_of, everything, flying, tools_of


async def test_a_run_goes_its_whole_way() -> None:
    """Start, gate, approval, result; each effect once, in the log as outside shows it."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", {"question": 1})
        (wait,) = await harness.waits()
        assert (wait["wait_id"], wait["arguments"]) == ("run-1:7", {"amount": 3})
        await harness.approve(run_id, by="dana", comment="fine")
        assert await harness.result(run_id) == "The end."
        events = await harness.events(run_id)
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert [event async for event in harness.events(run_id)] == events
        (resumed,) = [event for event in events if event["type"] == "resumed"]
        assert (resumed["approved_by"], resumed["comment"]) == ("dana", "fine")
        assert (await harness.state(run_id))["values"] == {"read_by": "run-1"}
        assert (await harness.show(run_id))["status"] == "completed"
        assert [one["run_id"] for one in await harness.list(status="completed")] == ["run-1"]
        assert await harness.attempts(run_id) == [
            Attempt("read", 2, 1, "first"),
            Attempt("mail", 4, 1, "first"),
            Attempt("post", 5, 1, "first"),
            Attempt("pay", 8, 1, "first"),
        ]
        assert [call.tool for call in harness.calls("tool")] == ["read", "mail", "post", "pay"]
        assert len(harness.calls("model", run_id=run_id)) == 4
        assert harness.world.payments == [("run-1:8", 3)]


async def test_ten_days_take_no_time() -> None:
    """Time passes in the log, not in the test."""
    began = time.monotonic()
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        await harness.waiting(run_id)
        await harness.advance(days=10)
        await harness.approve(run_id)
        await harness.result(run_id)
        events = await harness.events(run_id)
    first, last = (datetime.fromisoformat(events[place]["at"]) for place in (0, -1))
    assert (last - first).days == 10
    assert time.monotonic() - began < 60


async def test_a_result_that_needs_a_person_says_so_instead_of_hanging() -> None:
    """The error names the gate, the call, and what to do."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        with pytest.raises(RunWaitsError, match=r"awaiting_approval \(run-1:7\) of pay\(amount=3\)") as raised:
            await harness.result(run_id)
        assert raised.value.reasons == ("awaiting_approval",)


async def test_somebody_else_may_approve_while_a_result_is_waited_for() -> None:
    """``result`` in one task, ``approve`` in another: the wait is no error while somebody is about to end it."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        async with asyncio.TaskGroup() as group:
            output = group.create_task(harness.result(run_id))
            group.create_task(harness.approve(run_id))
    assert output.result() == "The end."


async def test_a_rejection_reaches_the_model() -> None:
    """The call does not happen, and the run goes on."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        await harness.reject(run_id, 7, by="dana")
        assert await harness.result(run_id) == "The end."
        assert harness.world.payments == []


async def test_an_approval_is_used_once() -> None:
    """A second decision about a gate is refused, as ``dead`` would say; so is a gate that never was."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        await harness.approve(run_id, "run-1:7", by="dana")
        with pytest.raises(InputRefusedError, match="not_open"):
            await harness.approve(run_id, 7, by="eve")
        with pytest.raises(InputRefusedError, match="not_open"):
            await harness.approve(run_id, 99)
        with pytest.raises(ValueError, match="no open gate: it is completed"):
            await harness.approve(run_id)
        with pytest.raises(RunNotFoundError):
            await harness.approve("nobody")


async def test_several_gates_are_told_apart() -> None:
    """With two gates open, the default is nobody's."""
    world = World()
    app = app_of(tools_of(world), [[("pay", {"amount": 1}), ("pay", {"amount": 2})], "ok"])
    async with Harness(app) as harness:
        run_id = await harness.start("agent", "go")
        await harness.waiting(run_id)
        with pytest.raises(ValueError, match="several open gates, say which: run-1:2, run-1:4"):
            await harness.approve(run_id)
        await harness.approve(run_id, 4)
        await harness.reject(run_id, 2)
        await harness.result(run_id)
    assert world.payments == [("run-1:5", 2)]


async def test_runs_that_fail_and_runs_that_are_cancelled_raise_as_the_client_does() -> None:
    """RunFailedError, RunCancelledError, RunNotFoundError."""
    world = World()
    failing = app_of([], ["x"], planner=lambda _: Fail("no way"))
    async with Harness(failing) as harness:
        with pytest.raises(RunFailedError, match="no way"):
            await harness.result(await harness.start("agent", "go"))
        with pytest.raises(RunNotFoundError):
            await harness.result("nobody")
    async with Harness(lambda: everything(world)) as harness:
        run_id = await harness.start("agent", "go")
        await harness.waiting(run_id)
        await harness.cancel(run_id, reason="changed my mind")
        with pytest.raises(RunCancelledError, match="changed my mind"):
            await harness.result(run_id)


async def test_what_cannot_be_started_is_refused() -> None:
    """The same id for another input; an agent that nobody knows makes the run wait until somebody does."""
    async with Harness(everything, world=World) as harness:
        await harness.start("agent", "go", run_id="mine")
        assert await harness.start("agent", "go", run_id="mine") == "mine"
        with pytest.raises(InputRefusedError, match="run_exists"):
            await harness.start("agent", "other", run_id="mine")
        with pytest.raises(RunWaitsError, match="unknown_agent"):
            await harness.result(await harness.start("nobody", "go"))


async def test_a_time_out_and_its_retries_are_virtual() -> None:
    """A tool that hangs for an hour is timed out, retried with back-off, and its error reaches the model."""

    @tool(recovery=Recovery.RERUN, timeout=600.0)
    async def hang(ctx: ToolContext[None]) -> str:
        """Hang."""
        await asyncio.sleep(3600)
        return f"never {ctx.attempt}"

    async with Harness(app_of([hang], [("hang", {}), "gave up"])) as harness:
        run_id = await harness.start("agent", "go")
        assert await harness.result(run_id) == "gave up"
        assert [one.why for one in await harness.attempts(run_id)] == ["first", "retry", "retry"]


async def test_a_result_that_does_not_come_says_where_the_run_is() -> None:
    """In virtual time, too."""

    @tool(recovery=Recovery.RERUN, timeout=3600.0)
    async def hang(ctx: ToolContext[None]) -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ctx.run_id

    async with Harness(app_of([hang], [("hang", {}), "x"])) as harness:
        run_id = await harness.start("agent", "go")
        with pytest.raises(TimeoutError, match="run-1 is at tool_call_requested of step 2"):
            await harness.result(run_id, timeout=20)


async def test_an_indeterminate_call_is_settled_by_a_person() -> None:
    """A MANUAL call whose process died: the run waits, ``resolve`` says what became of it."""
    async with Harness(flying, world=World) as harness:
        harness.crash(before="tool_returned")
        run_id = await harness.start("agent", "go")
        with pytest.raises(RunWaitsError, match="indeterminate") as raised:
            await harness.result(run_id)
        assert raised.value.reasons == ("indeterminate",)
        assert "nobody knows whether fly(), step 2, attempt 1, has happened (its executor is gone" in str(raised.value)
        await harness.resolve(run_id, 2, result="landed")
        assert await harness.result(run_id) == "The end."
        assert harness.world.flown == 1


async def test_an_error_of_the_lifespan_is_raised_in_the_test() -> None:
    """With the author's own traceback."""

    @asynccontextmanager
    async def lifespan(role: str) -> AsyncIterator[None]:
        if role:
            raise LookupError(f"no database for the {role}")
        yield

    app = App([Agent("agent", model=ScriptedModel(["x"]), instructions="")], lifespan=lifespan)
    with pytest.raises(LookupError, match="no database for the executor") as raised:
        await Harness(app).__aenter__()
    assert raised.traceback[-1].name == "lifespan"


async def test_an_error_of_a_later_lifespan_is_raised_too() -> None:
    """A process that cannot start after a crash is no silence: whoever waits for it is told."""
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(role: str) -> AsyncIterator[None]:
        entered.append(role)
        if entered.count("executor") > 1:
            raise LookupError("the second one has no database")
        yield

    app = App([Agent("agent", model=ScriptedModel(["x"]), instructions="")], lifespan=lifespan)

    async def play() -> None:
        async with Harness(app) as harness:
            harness.crash(before="model_responded")
            await harness.result(await harness.start("agent", "go"))

    with pytest.raises(LookupError, match="the second one"):
        await play()


async def test_an_author_tests_the_version_gate() -> None:
    """Another prompt: the run waits until somebody accepts it, or the old code is back."""

    def app(instructions: str) -> App:
        agent = Agent("agent", model=ScriptedModel([("pay", {"amount": 1}), "ok"]), instructions=instructions)
        return App([Agent("agent", model=agent.model, instructions=instructions, tools=tools_of(World()))])

    async with Harness(app("be kind")) as harness:
        run_id = await harness.start("agent", "go")
        await harness.waiting(run_id)
        await harness.restart()
        await harness.deploy(app("be rude"), revision="rev-2")
        await harness.approve(run_id)
        with pytest.raises(RunWaitsError, match="version_mismatch"):
            await harness.result(run_id)
        await harness.resume(run_id, accept_version=True)
        assert await harness.result(run_id) == "ok"
        (changed,) = [event for event in await harness.events(run_id) if event["type"] == "version_changed"]
        assert changed["to"]["revision"] == "rev-2"


async def test_a_restart_in_order_interrupts_nothing() -> None:
    """SIGTERM while a tool runs: it is drained, and not executed again."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        await harness.restart(revision="rev-2")
        await harness.approve(run_id)
        await harness.result(run_id)
        assert {one.attempt for one in await harness.attempts(run_id)} == {1}
        assert harness.world.lifespans == ["executor", "reconciler"] * 2


async def test_transactional_tools_have_an_effects_table() -> None:
    """Their statements are committed once, whatever dies."""

    @tool(recovery=Recovery.TRANSACTIONAL)
    async def store(ctx: ToolContext[None], name: str) -> str:
        """Store."""
        await ctx.connection.execute("insert into names values (%s)", (name,))
        await asyncio.sleep(1)
        return name

    async with Harness(app_of([store], [("store", {"name": "ann"}), "ok"])) as harness:
        harness.crash(after="tool_call_requested")
        harness.crash(before="tool_returned")
        run_id = await harness.start("agent", "go")
        assert await harness.result(run_id) == "ok"
        assert harness.committed == [("insert into names values (%s)", ("ann",))]


async def test_a_transactional_tool_that_reads_is_told_what_to_do() -> None:
    """The in-memory connection has no rows: the error that the tool gets names the way out."""

    @tool(recovery=Recovery.TRANSACTIONAL, retries=0)
    async def read(ctx: ToolContext[None]) -> str:
        """Read."""
        rows = await ctx.connection.execute("select 1")
        return str(await rows.fetchone())

    async with Harness(app_of([read], [("read", {}), "ok"])) as harness:
        await harness.result(await harness.start("agent", "go"))
        (call,) = harness.calls("tool")
        assert "there is no 'fetchone' here" in call.result
        assert "Harness(..., effects=...)" in call.result


async def test_a_harness_is_entered_before_it_is_used_and_once() -> None:
    """The error says how."""
    harness = Harness(everything, world=World)
    with pytest.raises(RuntimeError, match="async with"):
        await harness.start("agent", "go")
    async with harness:
        pass
    with pytest.raises(RuntimeError, match="once"):
        async with harness:
            pass


async def test_an_app_has_to_be_one() -> None:
    """Something else is refused where it is handed over."""
    with pytest.raises(TypeError, match=r"not a runfold\.App"):
        Harness(lambda: "app")  # type: ignore[arg-type, return-value]  # on purpose
