"""``crash``: right after an event, right before one, now; and what is no crash."""

from __future__ import annotations

import pytest

from runfold.testing import CrashNeverHappenedError, Harness, run
from tests.harness.agents import World, everything


async def test_the_process_dies_right_after_the_event() -> None:
    """The request is durable and the tool was not called: the next owner calls it, once."""
    async with Harness(everything, world=World) as harness:
        crash = harness.crash(after="tool_call_requested", step=4)
        assert not crash.happened
        run_id = await harness.start("agent", "go")
        assert (await crash).where == "executor-2, after tool_call_requested of step 4"
        assert harness.world.mails == {}
        await harness.approve(run_id)
        await harness.result(run_id)
        assert harness.world.mails == {"run-1:4": "ann", "run-1:5": "news"}
        attempts = await harness.attempts(run_id)
        assert [(one.step, one.attempt, one.why) for one in attempts if one.step == 4] == [
            (4, 1, "first"),
            (4, 2, "takeover"),
        ]


async def test_the_process_dies_before_the_event() -> None:
    """The tool was called and its outcome is lost: the lookup knows, and nothing is posted twice."""
    async with Harness(everything, world=World) as harness:
        harness.crash(before="tool_returned", step=5)
        run_id = await harness.start("agent", "go")
        await harness.approve(run_id)
        await harness.result(run_id)
        (returned,) = [
            event for event in await harness.events(run_id) if event["type"] == "tool_returned" and event["step"] == 5
        ]
        assert returned["source"] == "reconciled"
        assert [call.outcome for call in harness.calls("lookup")] == ["returned"]


async def test_an_armed_crash_is_awaited_no_longer_than_anything_moves() -> None:
    """Before any run, and at a gate, ``await`` gives the crash as it is: armed."""
    async with Harness(everything, world=World) as harness:
        crash = await harness.crash(after="resumed")
        assert not crash.happened
        run_id = await harness.start("agent", "go")
        assert not (await crash).happened
        await harness.approve(run_id)
        assert (await crash).happened
        assert await harness.result(run_id) == "The end."


async def test_a_crash_now() -> None:
    """Without an event, the process dies at once; the run goes on in the next one."""
    async with Harness(everything, world=World) as harness:
        run_id = await harness.start("agent", "go")
        harness.crash()
        await harness.approve(run_id)
        assert (await harness.crash()).happened
        assert await harness.result(run_id) == "The end."
        assert harness.world.lifespans.count("executor") == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"after": "tool_requested"}, "no type of event; those that there are: run_started, model_call_requested"),
        ({"after": "run_started", "step": 1}, "belongs to no step"),
        ({"after": "resumed", "before": "resumed"}, "not both"),
        ({"step": 3}, "kills the executor now"),
    ],
)
async def test_a_crash_that_cannot_be_is_refused(options: dict[str, object], said: str) -> None:
    """At once, with what could be meant."""
    async with Harness(everything, world=World) as harness:
        with pytest.raises(ValueError, match=said):
            harness.crash(**options)  # type: ignore[arg-type]  # on purpose


async def _with_a_crash_that_never_happens(error: Exception | None) -> None:
    async with Harness(everything, world=World) as harness:
        harness.crash(after="tool_returned", step=99)
        await harness.waiting(await harness.start("agent", "go"))
        if error is not None:
            raise error


async def test_a_crash_that_never_happened_fails_the_test() -> None:
    """At the end of the block, with where the runs got to; but it hides no other error."""
    with pytest.raises(CrashNeverHappenedError, match=r"after='tool_returned', step=99.*run-1: interrupted of step 7"):
        await _with_a_crash_that_never_happens(None)
    with pytest.raises(ZeroDivisionError):
        await _with_a_crash_that_never_happens(ZeroDivisionError())


def test_a_crash_of_one_run_leaves_the_other_ones_alone() -> None:
    """``run_id`` says whose event is meant."""

    async def play() -> None:
        async with Harness(everything, world=World) as harness:
            crash = harness.crash(after="tool_call_requested", step=2, run_id="b")
            await harness.start("agent", "go", run_id="a")
            await harness.waiting("a")
            assert [crash.happened] == [False]
            await harness.start("agent", "go", run_id="b")
            await harness.waiting("b")
            assert crash.happened
            assert {one.attempt for one in await harness.attempts("a")} == {1}

    run(play())
