"""A run that is held by an error while a request of it has no outcome comes to its end when it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.state import Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import HangingModel, hang, one_tool_app, requests


async def _hold(cluster: Cluster, app: App, request: str) -> None:
    """Lose the process during all attempts of r1's first call, and start one more: it holds the run."""

    async def lose(attempt: int) -> None:
        process = await cluster.start_executor(app)
        await cluster.until(lambda: cluster.types("r1").count(request) == attempt)
        await asyncio.sleep(1.0)
        process.kill()

    await cluster.start("r1", "a")
    for attempt in (1, 2, 3):
        await lose(attempt)
    await cluster.start_executor(app)
    await cluster.waiting("r1", "error")


async def _cancel(cluster: Cluster) -> None:
    await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))


@pytest.mark.parametrize("recovery", [Recovery.KEYED, Recovery.RERUN, Recovery.TRANSACTIONAL])
@pytest.mark.parametrize("pause", [0.0, 30.0])
def test_cancelled_in_the_tenure_that_holds_it(recovery: Recovery, pause: float) -> None:
    """Long afterwards too, when the run has left memory."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await _hold(cluster, one_tool_app(recovery, hang, timeout=60.0), "ToolCallRequested")
            await asyncio.sleep(pause)
            await _cancel(cluster)
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            assert len(requests(cluster)) == 3

    run_virtual(main())


def test_cancelled_while_its_model_call_has_no_outcome() -> None:
    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            model = HangingModel()
            await _hold(cluster, App([Agent("a", model=model, instructions="")]), "ModelCallRequested")
            await _cancel(cluster)
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            assert model.asked == 3

    run_virtual(main())


def test_cancelled_just_before_its_process_is_lost() -> None:
    """The next owner meets the cancel, the hold and the request."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, hang, timeout=60.0)
            await _hold(cluster, app, "ToolCallRequested")
            cluster.nodes[-1].kill()
            await _cancel(cluster)
            await cluster.start_executor(app)
            assert (await cluster.ended("r1")).ended is Status.CANCELLED

    run_virtual(main())


def test_a_lookup_call_of_a_held_run_is_asked_about_once_the_run_is_cancelled() -> None:
    """And not before: its verdict could not be used."""
    asked: list[int] = []

    async def find(ctx: ToolContext[None]) -> Absent:
        asked.append(ctx.attempt)
        return ABSENT

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.LOOKUP, hang, lookup=find, timeout=5.0)
            first = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            first.kill()
            await cluster.start_executor(App([Agent("b", model=HangingModel(), instructions="")]))
            await cluster.waiting("r1", "unknown_agent")
            cluster.start_reconciler(app)
            await asyncio.sleep(60)
            assert asked == []
            await _cancel(cluster)
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            assert asked == [1]

    run_virtual(main())
