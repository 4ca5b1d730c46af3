"""The recovery classes at work: frozen, bounded, given up by a cancel."""

from __future__ import annotations

import asyncio

import pytest

from runfold import ABSENT, Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Interrupted, RunCancelled, ToolCallRequested, ToolReturned, Why
from runfold.core.state import Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import (
    after_a_crash,
    hang,
    never_asked,
    one_tool_app,
    requests,
    rule_verdict,
)


def test_recovery_class_and_time_out_are_those_of_the_first_request() -> None:
    """Deployed with another class in between: the call that may have happened is treated as it was promised."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return await hang(ctx) if ctx.attempt == 1 else "done"

    async def main() -> None:
        lenient = {"on_version_change": {"tools": "accept"}}
        before = one_tool_app(Recovery.MANUAL, act, agent=lenient, timeout=10.0)
        after = one_tool_app(Recovery.RERUN, act, agent=lenient, timeout=99.0)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(before)
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(after)
            await cluster.waiting("r1", "indeterminate")
            assert calls == [1]
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await cluster.ended("r1")
            asked = [e for e in cluster.events("r1") if isinstance(e, ToolCallRequested)]
            assert [(e.recovery, e.timeout_ms) for e in asked] == [(Recovery.MANUAL, 10_000)] * 2

    run_virtual(main())


@pytest.mark.parametrize(
    ("recovery", "open_keys"), [(Recovery.RERUN, ()), (Recovery.KEYED, ("r1:2",)), (Recovery.LOOKUP, ())]
)
def test_a_cancel_during_the_back_off_gives_the_call_up_by_its_class(
    recovery: Recovery, open_keys: tuple[str, ...]
) -> None:
    """No further attempt; only what may have happened is named as open: a lookup is still asked, and says absent."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:

            async def fail(_: ToolContext[None]) -> str:
                await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
                raise RuntimeError("connection reset")

            async def look(_: ToolContext[None]) -> object:
                return ABSENT

            find = look if recovery is Recovery.LOOKUP else None
            await cluster.start_executor(one_tool_app(recovery, fail, lookup=find))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == open_keys
            assert ("Interrupted" in cluster.types("r1")) == (recovery is Recovery.KEYED)
            assert len(requests(cluster)) == 1

    run_virtual(main())


def test_a_cancel_during_the_back_off_of_an_absent_call_leaves_no_key_open() -> None:
    """The lookup has said that it did not happen, as a reconciler's verdict would have."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:

            async def fail(_: ToolContext[None]) -> str:
                raise RuntimeError("connection reset")

            async def look(_: ToolContext[None]) -> object:
                await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
                return ABSENT

            await cluster.start_executor(one_tool_app(Recovery.LOOKUP, fail, lookup=look))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert len(requests(cluster)) == 1
            assert last.open_keys == ()

    run_virtual(main())


@pytest.mark.parametrize(
    ("recovery", "open_keys"), [(Recovery.RERUN, ()), (Recovery.KEYED, ("r1:2",)), (Recovery.MANUAL, ("r1:2",))]
)
def test_a_cancelled_call_of_a_dead_owner_is_given_up_by_its_class(
    recovery: Recovery, open_keys: tuple[str, ...]
) -> None:
    """Never executed again; the keys whose outcome nobody knows are named."""

    async def main() -> None:
        app = one_tool_app(recovery, hang, timeout=20.0)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
            process.kill()
            await cluster.start_executor(app)
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == open_keys
            assert len(requests(cluster)) == 1

    run_virtual(main())


def test_an_absent_verdict_about_a_cancelled_run_executes_nothing() -> None:
    """The call did not happen and will not: no key is open."""

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, hang, lookup=never_asked)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
            process.kill()
            await cluster.start_executor(app)
            assert await rule_verdict(cluster, "absent") is None
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == ()
            assert len(requests(cluster)) == 1

    run_virtual(main())


@pytest.mark.parametrize(("recovery", "then"), [(Recovery.RERUN, "error"), (Recovery.KEYED, "indeterminate")])
def test_retries_are_bounded(recovery: Recovery, then: str) -> None:
    """RERUN gives the model an error after the tool's retries, KEYED asks a person."""
    calls: list[int] = []

    async def fail(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(recovery, fail, retries=2))
            await cluster.start("r1", "a")
            if then == "error":
                assert (await cluster.ended("r1")).ended is Status.COMPLETED
                [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
                assert returned.is_error
                assert not any(isinstance(event, Interrupted) for event in cluster.events("r1"))
            else:
                await cluster.waiting("r1", then)
            await asyncio.sleep(60)
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.RETRY), (3, Why.RETRY)]
            assert calls == [1, 2, 3]

    run_virtual(main())
