"""key_ttl: once the downstream may have forgotten a key, neither sending it again nor "absent" proves anything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runfold import ABSENT, Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.events import AskedCall, Source, ToolCallRequested, ToolReturned, Why
from runfold.core.payload import Inline
from runfold.core.policy import key_may_be_forgotten
from runfold.core.state import Call, State, Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import Body, after_a_crash, hang, never_asked, one_tool_app, requests, rule_verdict

LIFE_S = 1000.0


def app(recovery: Recovery, body: Body = hang, **options: Any) -> Any:
    """A tool whose downstream remembers keys for a while."""
    lookup = never_asked if recovery is Recovery.LOOKUP else None
    return one_tool_app(recovery, body, **{"timeout": 10.0, "key_ttl": LIFE_S, "lookup": lookup, **options})


def error(state: State) -> str:
    """What the one wait says."""
    [wait] = state.waits.values()
    return str(json.loads(wait.detail.data)["error"])  # type: ignore[union-attr]  # small: inline


async def done(ctx: ToolContext[None]) -> str:
    """Act, unless this is the attempt that is lost."""
    return await hang(ctx) if ctx.attempt == 1 else "done"


@pytest.mark.parametrize(("away_s", "is_asked"), [(800.0, False), (950.0, True)])
def test_a_keyed_call_is_run_again_only_while_its_key_is_remembered(away_s: float, *, is_asked: bool) -> None:
    """Its process died, and the next one came an outage later."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app(Recovery.KEYED, done))
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await asyncio.sleep(away_s)
            await cluster.start_executor(app(Recovery.KEYED, done))
            if not is_asked:
                await cluster.ended("r1")
                assert requests(cluster) == [(1, Why.FIRST), (2, Why.TAKEOVER)]
                return
            state = await cluster.waiting("r1", "indeterminate")
            assert "remembers a key for 1000 s (key_ttl), and that time is over" in error(state)
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


def test_the_lifetime_is_that_of_the_first_request_whatever_is_deployed_later() -> None:
    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app(Recovery.KEYED, done))
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await asyncio.sleep(1000.0)
            await cluster.start_executor(app(Recovery.KEYED, done, key_ttl=7 * LIFE_S))
            state = await cluster.waiting("r1", "indeterminate")
            assert "remembers a key for 1000 s" in error(state)
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


def test_the_lifetime_counts_from_the_first_request_and_anew_once_a_person_says_absent() -> None:
    """Not from the last one: the downstream has remembered the key since it first saw it."""

    async def act(ctx: ToolContext[None]) -> str:
        return await hang(ctx) if ctx.attempt < 4 else "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            for attempt in (1, 2):
                process = await cluster.start_executor(app(Recovery.KEYED, act))
                if attempt == 1:
                    await cluster.start("r1", "a")
                await after_a_crash(cluster, process, attempt)
                await asyncio.sleep(500.0)
            process = await cluster.start_executor(app(Recovery.KEYED, act))
            await cluster.waiting("r1", "indeterminate")
            assert [why for _, why in requests(cluster)] == [Why.FIRST, Why.TAKEOVER]
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await after_a_crash(cluster, process, 3)
            await asyncio.sleep(500.0)
            await cluster.start_executor(app(Recovery.KEYED, act))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            asked = [event for event in cluster.events("r1") if isinstance(event, ToolCallRequested)]
            firsts = [event.first_requested_at for event in asked]
            assert firsts == [asked[0].at, asked[0].at, asked[2].at, asked[2].at]

    run_virtual(main())


def test_a_retry_that_could_reach_the_downstream_too_late_is_not_made() -> None:
    """What counts is when the key would arrive, which may be a whole time-out later."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app(Recovery.KEYED, timeout=60.0, key_ttl=100.0))
            await cluster.start("r1", "a")
            state = await cluster.waiting("r1", "indeterminate")
            assert "timed out after 60 s" in error(state)
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


@pytest.mark.parametrize("outcome", ["absent", "found"])
def test_of_a_lookup_only_what_it_finds_is_believed_afterwards(outcome: str) -> None:
    """The reconciler's verdict is held against the frozen lifetime by the owner."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app(Recovery.LOOKUP))
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await asyncio.sleep(1000.0)
            await cluster.start_executor(app(Recovery.LOOKUP))
            result: dict[str, Any] = {"result": b'"T-7"'} if outcome == "found" else {}
            await rule_verdict(cluster, outcome, **result)
            if outcome == "found":
                await cluster.ended("r1")
                [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
                assert returned.source is Source.RECONCILED
            else:
                state = await cluster.waiting("r1", "indeterminate")
                assert "that its lookup finds nothing proves nothing" in error(state)
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


@pytest.mark.parametrize("takes_s", [40.0, 58.0])
def test_the_owners_own_lookup_is_held_against_it_too(takes_s: float) -> None:
    """What counts is how old the key is when the lookup answers."""

    async def fail(ctx: ToolContext[None]) -> str:
        if ctx.attempt == 1:
            raise RuntimeError("connection reset")
        return "again"

    async def slow(_: ToolContext[None]) -> object:
        await asyncio.sleep(takes_s)
        return ABSENT

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app(Recovery.LOOKUP, fail, lookup=slow, timeout=60.0, key_ttl=62.0))
            await cluster.start("r1", "a")
            if takes_s > 50.0:
                assert "connection reset" in error(await cluster.waiting("r1", "indeterminate"))
            else:
                await cluster.ended("r1")
                assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]

    run_virtual(main())


def call(**fields: Any) -> Call:
    """A requested call."""
    return Call(
        AskedCall("c", "t", Inline(b"{}")), **{"key_ttl_ms": 100_000, "first_requested_at": 1_000_000, **fields}
    )


def test_the_age_of_a_key_is_the_larger_of_two_measures_with_a_margin() -> None:
    """A wall clock that goes wrong cannot make a key younger than this process knows it to be."""
    assert not key_may_be_forgotten(call(), 1_089_999, 0.0)
    assert key_may_be_forgotten(call(), 1_090_000, 0.0)  # a tenth is kept for clocks that differ
    assert key_may_be_forgotten(call(), 0, 90.0)
    assert not key_may_be_forgotten(call(), 0, 89.0)
    assert key_may_be_forgotten(call(), 1_080_000, 0.0, until_sent_ms=10_000)
    assert not key_may_be_forgotten(call(key_ttl_ms=None), 10**15, 1e9)
    week = call(key_ttl_ms=7 * 86_400_000)
    assert not key_may_be_forgotten(week, 1_000_000 + 7 * 86_400_000 - 300_001, 0.0)  # never more than five minutes
    assert key_may_be_forgotten(week, 1_000_000 + 7 * 86_400_000 - 300_000, 0.0)
