"""dedupe: the effects table stands in for a downstream that knows no keys. Never called twice without a person."""

from __future__ import annotations

import asyncio
import contextvars
import json
from typing import Any

import pytest

from runfold import Recovery, ToolContext
from runfold.adapters.memory import MemoryEffects, MemoryEffectsDatabase
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Source, ToolReturned, Why
from runfold.core.state import State, Status
from runfold.ports.agents import Begun, Returned
from runfold.ports.effects import Effect
from runfold.testing.simulation.cluster import Cluster, ExecutorNode
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import after_a_crash, hang, one_tool_app, requests


class Downstream:
    """A downstream that knows no keys: each call of it is another effect."""

    def __init__(self) -> None:
        self.effects: list[int] = []

    async def act(self, ctx: ToolContext[None]) -> str:
        """Have an effect."""
        self.effects.append(ctx.attempt)
        return "done"

    def app(self, body: Any = None, **options: Any) -> Any:
        """An agent that calls it once."""
        return one_tool_app(Recovery.KEYED, body or self.act, dedupe=True, **{"timeout": 10.0, **options})


def detail(state: State) -> Any:
    """What the one wait says."""
    [wait] = state.waits.values()
    return json.loads(wait.detail.data)  # type: ignore[union-attr]  # small: inline


def source(cluster: Cluster) -> Source:
    """Where the result came from."""
    [found] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
    return found.source


def test_a_crash_during_the_call_asks_a_person_and_only_they_let_it_run_again() -> None:
    """Not before the dead process, which may be a paused one, can act no more."""
    downstream = Downstream()

    async def act(ctx: ToolContext[None]) -> str:
        result = await downstream.act(ctx)
        return await hang(ctx) if ctx.attempt == 1 else result

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(downstream.app(act))
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            claimed = asyncio.get_running_loop().time()
            await cluster.start_executor(downstream.app())
            state = await cluster.waiting("r1", "indeterminate")
            assert asyncio.get_running_loop().time() - claimed >= 15.0
            assert "attempt 1 began" in detail(state)["error"]
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert downstream.effects == [1, 2]
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]

    run_virtual(main())


def test_a_crash_before_the_claim_simply_runs_it() -> None:
    """Nobody has begun: that much the table knows, and no person is asked."""

    class Slow(MemoryEffects):
        async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
            if effect.attempt == 1:
                await asyncio.Event().wait()
            return await super().claim(effect, absent_upto, holder)

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Slow) as cluster:
            process = await cluster.start_executor(downstream.app())
            await cluster.start("r1", "a")
            await after_a_crash(cluster, process, 1)
            await cluster.start_executor(downstream.app())
            await cluster.ended("r1")
            assert downstream.effects == [2]
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.TAKEOVER)]

    run_virtual(main())


def test_a_crash_after_the_outcome_was_stored_finds_it() -> None:
    nodes: list[ExecutorNode] = []

    class Killing(MemoryEffects):
        async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
            await super().record(effect, holder, returned)
            asyncio.get_running_loop().call_soon(nodes[0].kill, context=contextvars.Context())

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Killing) as cluster:
            nodes.append(await cluster.start_executor(downstream.app()))
            await cluster.start("r1", "a")
            await cluster.until(lambda: downstream.effects)
            cluster.effects = MemoryEffects
            await cluster.start_executor(downstream.app())
            await cluster.ended("r1")
            assert downstream.effects == [1]
            assert source(cluster) is Source.EFFECTS_TABLE
            assert requests(cluster) == [(1, Why.FIRST)]

    run_virtual(main())


def test_an_exception_asks_a_person_at_once() -> None:
    """Its retries are for calls that did not begin."""
    downstream = Downstream()

    async def fail(ctx: ToolContext[None]) -> str:
        await downstream.act(ctx)
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(downstream.app(fail, retries=5))
            await cluster.start("r1", "a")
            state = await cluster.waiting("r1", "indeterminate")
            assert asyncio.get_running_loop().time() < 1.0
            assert "RuntimeError: connection reset" in detail(state)["error"]
            await asyncio.sleep(100)
            assert downstream.effects == [1]

    run_virtual(main())


def test_a_call_that_could_not_be_claimed_was_not_made_and_is_retried() -> None:
    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            cluster.effects_database.available = False
            await cluster.start_executor(downstream.app(retries=2))
            await cluster.start("r1", "a")
            await asyncio.sleep(0.5)
            cluster.effects_database.available = True
            await cluster.ended("r1")
            assert downstream.effects == [2]
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.RETRY)]

    run_virtual(main())


def test_a_call_that_never_began_is_closed_before_the_model_is_told() -> None:
    """With its retries used up: an error for the model, and no person."""

    class Flaky(MemoryEffects):
        async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
            return await MemoryEffects(MemoryEffectsDatabase(available=False)).claim(effect, absent_upto, holder)

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Flaky) as cluster:
            await cluster.start_executor(downstream.app(retries=1))
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert downstream.effects == []
            assert source(cluster) is Source.EFFECTS_TABLE
            assert await MemoryEffects(cluster.effects_database).find("r1", 2) is not None

    run_virtual(main())


def test_a_zombie_that_wakes_up_before_its_claim_is_refused() -> None:
    """A later attempt has claimed the key: the earlier one does not call."""
    go_on = asyncio.Event()

    class Slow(MemoryEffects):
        async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
            if effect.attempt == 1:
                await go_on.wait()
            return await super().claim(effect, absent_upto, holder)

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Slow) as cluster:
            zombie = await cluster.start_executor(downstream.app(timeout=300.0))
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            zombie.pause()
            await cluster.start_executor(downstream.app(timeout=300.0))
            await cluster.ended("r1")
            go_on.set()
            zombie.resume()
            await asyncio.sleep(10)
            assert downstream.effects == [2]

    run_virtual(main())


def test_a_stale_acknowledgement_gives_its_claim_back() -> None:
    """Claimed, and then not called since the acknowledgement had become too old meanwhile: nothing is in doubt."""

    class Slow(MemoryEffects):
        async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
            claimed = await super().claim(effect, absent_upto, holder)
            if effect.attempt == 1:
                await asyncio.sleep(6.0)
            return claimed

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Slow) as cluster:
            await cluster.start_executor(downstream.app())
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert downstream.effects == [2]
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.STALE)]

    run_virtual(main())


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_outcome_that_the_table_could_not_store_is_not_lost(*, is_recorded: bool) -> None:
    """The process knows it, and the log will."""

    class Forgetful(MemoryEffects):
        async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
            table = self if is_recorded else MemoryEffects(MemoryEffectsDatabase(available=False))
            await MemoryEffects.record(table, effect, holder, returned)

    downstream = Downstream()

    async def main() -> None:
        async with Cluster.running(partitions=1, effects=Forgetful) as cluster:
            await cluster.start_executor(downstream.app())
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert (downstream.effects, source(cluster)) == ([1], Source.CALL)

    run_virtual(main())
