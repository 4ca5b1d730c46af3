"""Dangling calls: what a verdict, a lookup or a person says of them, and when it is believed."""

from __future__ import annotations

import asyncio

import pytest

from runfold import ABSENT, Indeterminate, Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.events import ToolReturned, WaitReason, Why
from runfold.core.state import Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import (
    after_a_crash,
    hang,
    model_app,
    never_asked,
    one_tool_app,
    requests,
    rule_verdict,
    settled,
)
from tests.runtime.book import KeyedBook

ERROR = {"absent": None, "indeterminate": "no answer"}


def test_absent_is_believed_only_when_no_earlier_owner_can_act_any_more() -> None:
    """Of an earlier epoch's call: time-out and grace after the claim. Of this epoch's own call: at once."""

    async def fail(_: ToolContext[None]) -> str:
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, fail, timeout=20.0)
            clock = asyncio.get_running_loop().time
            absent = codec_inputs.encode_resolve("r1", 2, "absent", "ops")
            first = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await cluster.request("r1", absent)
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            assert clock() < 1.0
            await first.stop()
            second = await cluster.start_executor(app)
            await cluster.until(lambda: second.executor.ready)
            claimed = clock()
            await cluster.request("r1", absent)
            await cluster.until(lambda: cluster.types("r1").count("Resumed") == 2)
            assert 25.0 <= clock() - claimed < 26.0

    run_virtual(main())


@pytest.mark.parametrize("outcome", ["absent", "indeterminate"])
def test_a_verdict_against_an_effect_that_lives_is_stale(outcome: str) -> None:
    """Its owner knows better: neither a second attempt nor a person is asked for."""
    gate = asyncio.Event()

    async def act(_: ToolContext[None]) -> str:
        await gate.wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, act, lookup=never_asked))
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            assert await rule_verdict(cluster, outcome, error=ERROR[outcome]) == "stale"
            gate.set()
            await cluster.ended("r1")
            assert requests(cluster) == [(1, Why.FIRST)]
            assert "Interrupted" not in cluster.types("r1")

    run_virtual(main())


@pytest.mark.parametrize("outcome", ["absent", "indeterminate"])
def test_a_verdict_about_a_call_in_doubt_is_stale_unless_it_was_found(outcome: str) -> None:
    """A person was asked already; what was found is believed all the same."""

    async def fail(_: ToolContext[None]) -> str:
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            first = await cluster.start_executor(one_tool_app(Recovery.MANUAL, fail))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await first.stop()  # with the process its outcome is gone: only the phase says that it is in doubt
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, fail))
            assert await rule_verdict(cluster, outcome, error=ERROR[outcome]) == "stale"
            assert await rule_verdict(cluster, "found", result=b'"T-1"') is None
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_an_indeterminate_verdict_of_a_dead_owners_call_asks_a_person() -> None:
    """The lookup keeps failing: the run waits, visibly."""

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, hang, lookup=never_asked)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(app)
            assert await rule_verdict(cluster, "indeterminate", error="no answer") is None
            await cluster.waiting("r1", "indeterminate")

    run_virtual(main())


def test_a_call_that_is_absent_three_times_interrupts_the_run() -> None:
    """A call that kills its process before it happens is not repeated for ever; a person's resume allows it again."""

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, hang, lookup=never_asked)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            for attempt in (1, 2, 3):
                await after_a_crash(cluster, process, attempt)
                process = await cluster.start_executor(app)
                assert await rule_verdict(cluster, "absent", attempt=attempt) is None
            await cluster.waiting("r1", WaitReason.ERROR)
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT), (3, Why.ABSENT)]
            assert await rule_verdict(cluster, "absent", attempt=3) == "stale"
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            await cluster.until(lambda: "Resumed" in cluster.types("r1"))
            assert await rule_verdict(cluster, "absent", attempt=3) is None
            assert requests(cluster)[3:] == [(4, Why.ABSENT)]

    run_virtual(main())


def test_absent_does_not_execute_a_run_that_the_version_gate_holds_back() -> None:
    """It is stale there; the executor with the right version takes the same verdict."""

    async def act(ctx: ToolContext[None]) -> str:
        return await hang(ctx) if ctx.attempt == 1 else "done"

    async def main() -> None:
        right = one_tool_app(Recovery.LOOKUP, act, lookup=never_asked)
        other = one_tool_app(Recovery.LOOKUP, act, lookup=never_asked, agent={"instructions": "another prompt"})
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(right)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            wrong = await cluster.start_executor(other)
            await cluster.waiting("r1", "version_mismatch")
            assert await rule_verdict(cluster, "absent") == "stale"
            assert len(requests(cluster)) == 1
            await wrong.stop()
            await cluster.start_executor(right)
            await cluster.until(lambda: "Resumed" in cluster.types("r1"))
            assert await rule_verdict(cluster, "absent") is None
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_a_resume_of_an_agent_that_this_code_does_not_know_or_of_nothing_is_refused() -> None:
    """The first cannot be lifted here, the second holds nothing."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done", name="other"))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "unknown_agent")
            await cluster.start("r2", "other")
            await cluster.ended("r2")
            resume = [await cluster.request(r, codec_inputs.encode_resume(r, "ops")) for r in ("r1", "r2")]
            assert (await settled(cluster, "r1", resume[0])).reason == "unknown_agent"
            assert (await settled(cluster, "r2", resume[1])).reason == "not_open"
            assert "Resumed" not in cluster.types("r1")

    run_virtual(main())


def test_five_lookups_that_do_not_decide_it_ask_a_person() -> None:
    """The live owner asks at once, then 1, 2, 4 and 8 seconds later, and does not repeat the call."""
    asked: list[float] = []

    async def fail(_: ToolContext[None]) -> str:
        asked.append(asyncio.get_running_loop().time())
        raise RuntimeError("connection reset")

    async def look(_: ToolContext[None]) -> str:
        asked.append(asyncio.get_running_loop().time())
        raise Indeterminate("cannot tell")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, fail, lookup=look))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await asyncio.sleep(100)
            assert [round(later - asked[0]) for later in asked] == [0, 0, 1, 3, 7, 15]
            assert len(requests(cluster)) == 1

    run_virtual(main())


def test_after_a_time_out_the_lookup_is_asked_when_the_grace_is_over() -> None:
    """What was on its way may still arrive: "absent" before that would repeat it."""
    looked: list[float] = []
    began: list[float] = []

    async def act(ctx: ToolContext[None]) -> str:
        began.append(asyncio.get_running_loop().time())
        return await hang(ctx) if ctx.attempt == 1 else "done"

    async def look(_: ToolContext[None]) -> object:
        looked.append(asyncio.get_running_loop().time())
        return ABSENT

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, act, lookup=look, timeout=2.0))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert looked[0] - began[0] == pytest.approx(7.0, abs=0.1)
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]

    run_virtual(main())


def test_a_lookup_call_that_stays_absent_is_an_error_for_the_model() -> None:
    """Up to the tool's retries it is executed again; then the model is told, since nothing has happened."""
    calls: list[int] = []

    async def fail(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        raise RuntimeError("refused")

    async def look(_: ToolContext[None]) -> object:
        return ABSENT

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, fail, lookup=look, retries=2))
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert calls == [1, 2, 3]
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert returned.is_error

    run_virtual(main())


def test_a_lookup_call_of_a_dead_owner_is_settled_by_the_reconciler() -> None:
    """Found: believed at once. The tool is called once."""
    book = KeyedBook()

    async def act(ctx: ToolContext[None]) -> str:
        book.apply(ctx.idempotency_key, "T-1")
        return await hang(ctx)

    async def look(ctx: ToolContext[None]) -> str:
        return str(book.results[ctx.idempotency_key])

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, act, lookup=look)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(app)
            await cluster.ended("r1")
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert returned.source == "reconciled"
            assert book.effects == {"r1:2": 1}

    run_virtual(main())


def test_one_crash_behind_live_failures_is_not_three() -> None:
    """Attempts that failed in a process that lives are retries: they bring no call nearer to being given up as lost."""

    async def act(ctx: ToolContext[None]) -> str:
        if ctx.attempt < 3:
            raise RuntimeError("connection reset")
        return await hang(ctx) if ctx.attempt == 3 else "done"

    async def look(_: ToolContext[None]) -> object:
        return ABSENT

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, act, lookup=look, timeout=10.0, retries=5)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 3)
            second = await cluster.start_executor(app)
            await cluster.until(lambda: second.executor.ready)
            await rule_verdict(cluster, "absent", 3)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert requests(cluster)[-1] == (4, Why.ABSENT)

    run_virtual(main())
