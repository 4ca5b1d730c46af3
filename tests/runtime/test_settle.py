"""Lookups that settle, time out and are counted; several reconcilers; hung executors; a cancel behind a held input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from runfold import ABSENT, Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.core.events import RunCancelled, Source, ToolReturned, Why
from runfold.core.state import State
from runfold.sdk import threads
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import after_a_crash, hang, never_asked, one_tool_app, requests, settled


def now() -> float:
    """Virtual time."""
    return asyncio.get_running_loop().time()


def error(state: State) -> str:
    """What the one wait says."""
    [wait] = state.waits.values()
    return str(json.loads(wait.detail.data)["error"])  # type: ignore[union-attr]  # small: inline


def result(cluster: Cluster) -> ToolReturned:
    """The one result."""
    [found] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
    return found


async def fail(ctx: ToolContext[None]) -> str:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise RuntimeError("connection reset")
    return "again"


@pytest.mark.parametrize("appears_after_s", [20.0, None])
def test_absent_is_not_believed_before_the_lookup_has_settled(appears_after_s: float | None) -> None:
    """What the call did shows at last and is believed at once; or it does not, and the call is made again."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:

            async def look(_: ToolContext[None]) -> object:
                asked.append(now())
                return "T-7" if appears_after_s is not None and now() >= appears_after_s else ABSENT

            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, fail, lookup=look, settle=40.0))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            if appears_after_s is None:
                assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]
                assert 40.0 <= asked[-1] < 41.0
            else:
                assert requests(cluster) == [(1, Why.FIRST)]
                assert result(cluster).source is Source.RECONCILED
                assert appears_after_s <= asked[-1] < 40.0
            assert len(asked) <= 5

    run_virtual(main())


@pytest.mark.parametrize("raises", [False, True])
def test_a_thread_that_ends_late_is_believed_or_settles_from_its_end(
    monkeypatch: pytest.MonkeyPatch, *, raises: bool
) -> None:
    """It acts long behind time-out and grace, where the lookup finds it only a while later: once, whatever it says."""
    acted: list[float] = []

    def start(function: Callable[[], None], _: str) -> None:
        asyncio.get_running_loop().call_later(24.0, function)

    @tool(recovery=Recovery.LOOKUP, timeout=5.0, settle=30.0, retries=5)
    def act() -> str:
        """Act, at the end of its thread's time."""
        acted.append(now())
        if raises:
            raise OSError("the connection broke")
        return "done"

    @act.lookup(tries=10)
    async def find() -> Any:
        """Find what was done a while ago."""
        return "done" if any(now() - at >= 29.0 for at in acted) else ABSENT

    async def main() -> None:
        app = App([Agent("a", model=ScriptedModel([("act", {}), "x"]), instructions="", tools=[act])])
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            await asyncio.sleep(100.0)
            assert len(acted) == 1
            assert requests(cluster) == [(1, Why.FIRST)]

    monkeypatch.setattr(threads, "start", start)
    run_virtual(main())


def test_a_reconciler_waits_for_the_lookup_to_settle_too() -> None:
    """By the database's clock: time-out, grace, and settle, since the row was inserted."""
    asked: list[float] = []

    async def act(ctx: ToolContext[None]) -> str:
        return await hang(ctx) if ctx.attempt == 1 else "again"

    async def look(_: ToolContext[None]) -> object:
        asked.append(now())
        return ABSENT

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.LOOKUP, act, lookup=look, settle=100.0, timeout=10.0)
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.ended("r1")
            assert 115.0 <= asked[-1] < 119.0
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]

    run_virtual(main())


def quick_lookup(body: Any, lookup: Any, **options: Any) -> App:
    """A LOOKUP tool whose lookup has its own time-out and tries."""

    @tool(recovery=Recovery.LOOKUP, timeout=20.0)
    async def act(ctx: ToolContext[None]) -> str:
        """Act."""
        return str(await body(ctx))

    @act.lookup(**options)
    async def find(ctx: ToolContext[None]) -> Any:
        """Find."""
        return await lookup(ctx)

    return App([Agent("a", model=ScriptedModel([("act", {}), "done"]), instructions="", tools=[act])])


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_lookup_has_its_own_time_out_and_tries(*, is_dead: bool) -> None:
    """Of the owner and of the reconciler alike."""
    asked: list[float] = []

    async def look(ctx: ToolContext[None]) -> str:
        asked.append(ctx.seconds_left())
        return await hang(ctx)

    async def main() -> None:
        app = quick_lookup(hang if is_dead else fail, look, timeout=3.0, tries=2)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            if is_dead:
                await after_a_crash(cluster, process, 1)
                await asyncio.sleep(60.0)
                await cluster.start_executor(app)
                cluster.start_reconciler(app)
            state = await cluster.waiting("r1", "indeterminate")
            assert asked == pytest.approx([3.0, 3.0])
            assert "2 lookups did not decide it; the last: timed out after 3 s" in error(state)

    run_virtual(main())


def test_a_slow_lookup_is_asked_by_one_of_several_reconcilers() -> None:
    """Longer than a lease: it is extended before. One lookup, one verdict, whoever else scans."""
    asked: list[float] = []

    async def look(_: ToolContext[None]) -> str:
        asked.append(now())
        await asyncio.sleep(90.0)
        return "T-7"

    async def main() -> None:
        app = quick_lookup(hang, look, timeout=100.0)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(app)
            for _ in range(4):
                cluster.start_reconciler(app)
            await cluster.ended("r1")
            assert len(asked) == 1
            await asyncio.sleep(300.0)
            assert len(asked) == 1

    run_virtual(main())


def deaf_app(lookup: Any) -> App:
    """A tool that ignores its cancellation, so that its time-out never ends it."""

    async def act(_: ToolContext[None]) -> str:
        while True:
            try:
                await asyncio.sleep(1_000_000.0)
            except asyncio.CancelledError:
                if now() > 900.0:  # the test is over
                    raise

    return one_tool_app(Recovery.LOOKUP, act, lookup=lookup, timeout=10.0)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_executor_that_hangs_in_a_tool_is_freed_by_the_reconciler(*, is_there: bool) -> None:
    """Found: the run goes on at the deadline. Absent: nothing is executed beside the hung call, a person is asked."""

    async def look(_: ToolContext[None]) -> object:
        return "T-7" if is_there else ABSENT

    async def main() -> None:
        app = deaf_app(look)
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            if is_there:
                await cluster.ended("r1")
                assert 15.0 <= now() < 20.0
                assert result(cluster).source is Source.RECONCILED
            else:
                state = await cluster.waiting("r1", "indeterminate")
                assert now() < 40.0
                assert "still in the call, which ignores its time-out" in error(state)
            assert requests(cluster) == [(1, Why.FIRST)]
            await asyncio.sleep(1000.0)

    run_virtual(main())


def test_a_cancel_passes_a_resolve_that_is_held() -> None:
    """``absent`` may not be believed yet of a dead owner's call: who wants the run to stop does not wait for that."""

    async def main() -> None:
        app = one_tool_app(Recovery.MANUAL, fail, timeout=300.0)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            process.kill()
            await cluster.start_executor(app)
            await asyncio.sleep(20.0)
            resolved = await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await asyncio.sleep(1.0)
            assert "Resumed" not in cluster.types("r1")  # it is held
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            asked = now()
            await cluster.ended("r1")
            assert now() - asked < 1.0
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == ("r1:2",)
            assert (await settled(cluster, "r1", resolved)).reason == "not_open"
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


def test_nobody_is_asked_about_a_call_that_is_still_in_its_time() -> None:
    """The reconciler leaves a live owner's call alone until its time and the grace are over."""

    async def slow(_: ToolContext[None]) -> str:
        await asyncio.sleep(50.0)
        return "done"

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, slow, lookup=never_asked, timeout=60.0)
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert result(cluster).source is Source.CALL

    run_virtual(main())
