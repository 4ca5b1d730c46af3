"""An exception in a tool or a lookup: the log says where it was raised, and nothing that may be payload."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic_ai import ModelRetry
from structlog.testing import capture_logs

from runfold import Recovery, tool
from runfold.ports.agents import Returned, Unknown
from runfold.sdk.frames import frames_of
from tests.unit.sdk.calling import invocation, running

SECRET = "4111-" * 2  # not whole in the source, in which a line could be cited


def charge(card: str) -> NoReturn:
    """Fail as an author's helper does."""
    raise ValueError(card)


def charge_again() -> NoReturn:
    """Raise one exception from another."""
    try:
        charge(SECRET)
    except ValueError as error:
        raise RuntimeError(SECRET) from error


def line_of(text: str) -> int:
    """Give the number of the only line of this file that is ``text``."""
    (found,) = [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text]
    return found


RAISES = f"{__file__}:{line_of('raise ValueError(card)')} in charge"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_raises_is_logged_with_its_frames_and_without_its_message(*, is_async: bool) -> None:
    """Which run, step, attempt and tool; file and line of each of the author's frames, the innermost last."""

    @tool(recovery=Recovery.RERUN)
    async def pay(card: str) -> int:
        charge(card)

    @tool(recovery=Recovery.RERUN)
    def pay_in_thread(card: str) -> int:
        charge(card)

    used = pay if is_async else pay_in_thread
    with capture_logs() as logged:
        async with running(used) as agent:
            ended = await agent.execute(invocation(used.name, {"card": SECRET}, attempt=2))
    assert ended == Unknown(f"ValueError: {SECRET}")
    (line,) = logged
    frames = line.pop("frames")
    assert line == {
        "event": "tool_raised",
        "log_level": "warning",
        "run_id": "run-1",
        "step": 18,
        "attempt": 2,
        "tool": used.name,
        "error": "ValueError",
    }
    assert frames[-2:] == [RAISES, "ValueError"]
    assert frames[-3].startswith(f"{__file__}:")
    assert frames[-3].endswith(f" in {used.name}")
    assert SECRET not in json.dumps(logged)


async def test_a_lookup_that_raises_is_told_from_its_tool() -> None:
    """Another event, the same fields."""

    @tool(recovery=Recovery.LOOKUP)
    async def pay() -> int:
        return 1

    @pay.lookup
    async def find() -> int:
        charge(SECRET)

    with capture_logs() as logged:
        async with running(pay) as agent:
            assert isinstance(await agent.look_up(invocation("pay")), Unknown)
    (line,) = logged
    assert (line["event"], line["tool"], line["step"]) == ("lookup_raised", "pay", 18)
    assert line["frames"][-2:] == [RAISES, "ValueError"]


async def test_what_is_no_defect_of_the_tool_is_not_logged() -> None:
    """What it tells the model, and a time-out, which the outcome says."""

    @tool(recovery=Recovery.RERUN)
    async def refuse() -> int:
        raise ModelRetry(SECRET)

    @tool(recovery=Recovery.RERUN)
    async def hang() -> int:
        await asyncio.Event().wait()
        return 1

    with capture_logs() as logged:
        async with running(refuse, hang) as agent:
            assert isinstance(await agent.execute(invocation("refuse")), Returned)
            ended = await agent.execute(invocation("hang", timeout_s=0.01))
            assert isinstance(ended, Unknown)
            assert ended.timed_out
    assert logged == []


def test_what_an_exception_was_raised_from_stands_before_it_and_members_of_a_group_behind_it() -> None:
    """As Python prints them, each ended by its type."""
    with pytest.raises(RuntimeError) as chained:
        charge_again()
    assert [line for line in frames_of(chained.value) if ":" not in line] == ["ValueError", "RuntimeError"]
    with pytest.raises(ExceptionGroup) as grouped:
        raise ExceptionGroup(SECRET, [chained.value])
    assert [line for line in frames_of(grouped.value) if ":" not in line] == ["ExceptionGroup", "RuntimeError"]


def test_endless_chains_and_deep_recursion_stay_short() -> None:
    """A line of a log is no place for a thousand frames."""

    def deep() -> None:
        deep()

    with pytest.raises(RecursionError) as caught:
        deep()
    caught.value.__cause__ = caught.value
    assert len(frames_of(caught.value)) == 21
    errors = [ValueError(number) for number in range(1000)]
    for one, before in zip(errors, [errors[-1], *errors], strict=False):
        one.__context__ = before
    assert len(frames_of(errors[-1])) == 8
