"""Model calls: retried with back-off, at the provider's own time, across owners, and a bounded number of times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from runfold import Agent, App
from runfold.adapters.memory.clock import LoopClock
from runfold.codec import inputs as codec_inputs
from runfold.core.events import ModelCallFailed, ModelCallRequested, WaitReason, Why
from runfold.core.state import Status
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import HangingModel, model_app


def failing(asked: list[float], times: int, error: Exception) -> Any:
    """Give a script item that fails so many times, and notes when it was asked."""

    def item(_: object) -> str:
        asked.append(asyncio.get_running_loop().time())
        if len(asked) <= times:
            raise error
        return "done"

    return item


def attempts(cluster: Cluster) -> list[tuple[int, Why]]:
    """Attempt and reason of each valid model request of r1."""
    return [(e.attempt, e.why) for e in cluster.events("r1") if isinstance(e, ModelCallRequested)]


def test_a_failing_model_is_asked_three_times_and_then_a_person() -> None:
    """With a growing, jittered back-off in between; a person's resume allows three more."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app(failing(asked, 4, ModelHTTPError(503, "m"))))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", WaitReason.ERROR)
            await asyncio.sleep(100)
            assert attempts(cluster) == [(1, Why.FIRST), (2, Why.RETRY), (3, Why.RETRY)]
            failed = [event for event in cluster.events("r1") if isinstance(event, ModelCallFailed)]
            assert [event.retry_at is None for event in failed] == [False, False, True]
            assert asked[0] < asked[1] <= asked[0] + 0.6
            assert asked[1] < asked[2] <= asked[1] + 1.1
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert len(asked) == 5

    run_virtual(main())


def test_a_model_that_refuses_is_not_asked_again() -> None:
    """An error that no retry mends interrupts the run at once."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app(failing(asked, 9, ModelHTTPError(400, "m"))))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", WaitReason.ERROR)
            assert len(asked) == 1

    run_virtual(main())


@pytest.mark.parametrize(("after", "waited"), [(20.0, 20.0), (500.0, 30.0)])
def test_a_providers_retry_after_is_honoured_up_to_thirty_seconds(after: float, waited: float) -> None:
    """Asking earlier would only be refused again."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app(failing(asked, 1, ModelHTTPError(429, "m", retry_after=after))))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert asked[1] - asked[0] == pytest.approx(waited, abs=0.05)

    run_virtual(main())


async def hand_over_before_the_retry(cluster: Cluster, asked: list[float]) -> None:
    """Let the next owner retry a model that has said to ask again in 25 seconds; its clock is the loop's."""
    app = model_app(failing(asked, 1, ModelHTTPError(429, "m", retry_after=25.0)))
    first = await cluster.start_executor(app)
    await cluster.start("r1", "a")
    await cluster.until(lambda: "ModelCallFailed" in cluster.types("r1"))
    await first.stop()
    cluster.clock = LoopClock
    await cluster.start_executor(app)
    await cluster.ended("r1")


def test_a_new_owner_waits_for_the_time_of_the_retry() -> None:
    """The time stands in the log: a hand-over does not ask early, nor count it as an attempt lost."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await hand_over_before_the_retry(cluster, asked)
            assert asked[1] - asked[0] == pytest.approx(25.0, abs=0.05)
            assert attempts(cluster) == [(1, Why.FIRST), (2, Why.RETRY)]

    run_virtual(main())


def test_a_new_owner_whose_clock_is_slow_waits_no_longer_than_the_longest_pause() -> None:
    """The moment of the retry was set by another machine, whose clock may be minutes ahead."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            cluster.clock = _Ahead
            await hand_over_before_the_retry(cluster, asked)
            assert asked[1] - asked[0] == pytest.approx(30.0, abs=1.0)

    run_virtual(main())


class _Ahead(LoopClock):
    """A wall clock that is ten minutes ahead of all others."""

    def now_ms(self) -> int:
        return super().now_ms() + 600_000


def test_a_run_that_ends_before_its_retry_leaves_memory_at_once() -> None:
    """Seed 1416417277: it stayed until the moment of a retry that nobody wanted any more."""
    asked: list[float] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = model_app(failing(asked, 1, ModelHTTPError(429, "m", retry_after=30.0)))
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: "ModelCallFailed" in cluster.types("r1"))
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            ended_at = asyncio.get_running_loop().time()
            await cluster.until(lambda: process.executor.runs_in_memory == 0)
            assert asyncio.get_running_loop().time() < ended_at + 5
            assert len(asked) == 1

    run_virtual(main())


def test_a_dangling_model_request_is_issued_again_and_counted_as_unaccounted() -> None:
    """Its process dies while the model thinks: nothing depended on the answer, and its spend is unknown."""
    model = HangingModel(1)

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = App([Agent("a", model=model, instructions="")])
            first = await cluster.start_executor(app, "p0")
            await cluster.start("r1", "a")
            await cluster.until(lambda: model.asked == 1)
            first.kill()
            await cluster.start_executor(app, "p1")
            state = await cluster.ended("r1")
            assert attempts(cluster) == [(1, Why.FIRST), (2, Why.TAKEOVER)]
            assert model.asked == 2
            assert state.unaccounted_calls == 1

    run_virtual(main())


def test_three_model_calls_lost_to_crashes_interrupt_the_run() -> None:
    """A completion that kills its process cannot halt a partition; a person's resume asks again."""
    model = HangingModel(3)

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = App([Agent("a", model=model, instructions="")])
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            for lost in (1, 2, 3):
                await cluster.until(lambda lost=lost: model.asked == lost)  # type: ignore[misc]
                process.kill()
                process = await cluster.start_executor(app)
            await cluster.waiting("r1", WaitReason.ERROR)
            assert model.asked == 3
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert model.asked == 4

    run_virtual(main())
