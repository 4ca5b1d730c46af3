"""Sync tools whose thread outlives its time-out: what it did is neither lost nor done again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from runfold import ABSENT, Absent, Recovery, ToolContext, tool
from runfold.core.events import Outcome
from runfold.ports.agents import NotThere, Returned, Unknown
from runfold.sdk import threads as threads_module
from runfold.sdk.threads import Threads
from tests.unit.sdk.calling import Deps, invocation, running


async def test_no_new_attempt_starts_before_the_thread_of_the_earlier_has_returned() -> None:
    """A sync tool may outlive its time-out; other keys are not held up by it."""
    release = threading.Event()
    attempts: list[int] = []

    @tool(recovery=Recovery.KEYED)
    def slow(ctx: ToolContext[Deps]) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            release.wait()
        return ctx.attempt

    async with running(slow) as agent:
        first = await agent.execute(invocation("slow", timeout_s=0.05))
        assert first == Unknown("timed out after 0.05 s; a thread of this call is still running in this process", True)
        blocked = await agent.execute(invocation("slow", attempt=2, timeout_s=0.02))
        assert isinstance(blocked, Unknown)
        assert blocked.timed_out
        assert attempts == [1]
        other = await agent.execute(invocation("slow", attempt=7, idempotency_key="run-1:20"))
        assert other == Returned(Outcome.SUCCESS, b"7")
        third = asyncio.create_task(agent.execute(invocation("slow", attempt=3)))
        await asyncio.sleep(0)
        assert 3 not in attempts
        release.set()
        assert await third == Returned(Outcome.SUCCESS, b"3")
        assert attempts == [1, 7, 3]


async def test_what_a_manual_call_did_after_its_time_out_is_not_done_again() -> None:
    """A person may say "absent" while the thread is still on its way: the mail must not go out twice."""
    release = threading.Event()
    sent: list[int] = []

    @tool(recovery=Recovery.MANUAL)
    def send(ctx: ToolContext[Deps]) -> str:
        release.wait()
        sent.append(ctx.attempt)
        if len(sent) > 1:
            raise OSError("the connection broke")
        return "sent"

    async with running(send) as agent:
        first = await agent.execute(invocation("send", timeout_s=0.05))
        assert isinstance(first, Unknown)
        second = asyncio.create_task(agent.execute(invocation("send", attempt=2)))
        release.set()
        assert await second == Returned(Outcome.SUCCESS, b'"sent"')
        assert sent == [1]
        # It is told once: what somebody asks for afterwards is done.
        assert isinstance(await agent.execute(invocation("send", attempt=3)), Unknown)
        assert sent == [1, 3]


async def test_absent_is_not_believed_while_a_thread_of_the_call_still_runs() -> None:
    """What is absent now may happen the next moment; found is found."""
    release = threading.Event()
    answer: list[Any] = [ABSENT]

    @tool(recovery=Recovery.LOOKUP)
    def create(title: str) -> str:
        release.wait()
        return title

    @create.lookup
    async def find(title: str) -> str | Absent:
        return answer[0] if title else "never"

    call = invocation("create", {"title": "x"}, timeout_s=0.05)
    async with running(create) as agent:
        await agent.execute(call)
        doubted = await agent.look_up(call)
        assert isinstance(doubted, Unknown)
        assert "still running" in doubted.error
        answer[:] = ["T-1"]
        assert await agent.look_up(call) == Returned(Outcome.SUCCESS, b'"T-1"')
        answer[:] = [ABSENT]
        release.set()
        assert await agent.execute(invocation("create", {"title": "y"})) == Returned(Outcome.SUCCESS, b'"x"')
        assert await agent.look_up(call) == NotThere()
        assert await agent.execute(invocation("create", {"title": "y"})) == Returned(Outcome.SUCCESS, b'"y"')


RAISED_LATE = "an earlier thread of this call raised behind its time-out; what it did may not show yet (settle)"


@pytest.mark.parametrize("settle_ms", [None, 30_000])
async def test_a_lookups_thread_that_ended_late_is_believed_before_the_lookup(settle_ms: int | None) -> None:
    """It knows what it did, which the lookup may not show yet; one that raised does not know it.

    How long the lookup may miss it the request has frozen: the running code's tool does not say it any more.
    """
    release, raises = threading.Event(), threading.Event()
    acted: list[int] = []

    @tool(recovery=Recovery.LOOKUP)
    def create(ctx: ToolContext[Deps]) -> str:
        release.wait()
        acted.append(ctx.attempt)
        if raises.is_set():
            raise OSError("the connection broke")
        return "T-1"

    @create.lookup
    async def find() -> str | Absent:
        return ABSENT

    async def outlive(attempt: int) -> None:
        release.clear()
        assert isinstance(await agent.execute(invocation("create", attempt=attempt, timeout_s=0.05)), Unknown)
        release.set()
        asked = invocation("create", attempt=attempt)
        while isinstance(answer := await agent.look_up(asked), Unknown):  # noqa: ASYNC110 - until the thread has ended
            await asyncio.sleep(0)
        answers.append(answer)

    answers: list[Any] = []
    async with running(create) as agent:
        await outlive(1)
        assert answers.pop() == Returned(Outcome.SUCCESS, b'"T-1"')
        assert acted == [1]
        raises.set()
        await outlive(2)
        assert answers.pop() == NotThere()
        # Somebody says "absent" before this process has looked: what it did may not show yet.
        release.clear()
        assert isinstance(await agent.execute(invocation("create", attempt=3, timeout_s=0.05)), Unknown)
        again = asyncio.create_task(agent.execute(invocation("create", attempt=4, settle_ms=settle_ms)))
        release.set()
        assert await again == Unknown(RAISED_LATE if settle_ms else "OSError: the connection broke")
        assert acted == ([1, 2, 3] if settle_ms else [1, 2, 3, 4])


@pytest.mark.parametrize("raises", [False, True])
async def test_what_a_thread_did_after_its_time_out_is_found_before_the_next_attempt(*, raises: bool) -> None:
    """The reconciler may have said "absent" while the thread was still on its way: the ticket must not be doubled."""
    release = threading.Event()
    tickets: list[str] = []
    asked: list[int] = []

    @tool(recovery=Recovery.LOOKUP)
    def create(title: str) -> str:
        release.wait()
        tickets.append(title)
        if raises and len(tickets) == 1:
            raise OSError("the connection broke")
        return title

    @create.lookup
    async def find(ctx: ToolContext[Deps], title: str) -> str | Absent:
        asked.append(ctx.attempt)
        return title if title in tickets else ABSENT

    async with running(create) as agent:
        await agent.execute(invocation("create", {"title": "x"}, timeout_s=0.05))
        again = asyncio.create_task(agent.execute(invocation("create", {"title": "x"}, attempt=2)))
        await asyncio.sleep(0)
        release.set()
        assert await again == Returned(Outcome.SUCCESS, b'"x"')
        assert (tickets, asked) == (["x"], [2] if raises else [])
        other = invocation("create", {"title": "y"}, idempotency_key="run-1:20")
        assert await agent.execute(other) == Returned(Outcome.SUCCESS, b'"y"')
        assert asked == ([2] if raises else [])


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_what_a_thread_said_late_is_kept_only_if_somebody_will_ask(*, is_asked_for: bool) -> None:
    """Nobody asks what became of a RERUN or KEYED call: the results of those that time out would only fill memory."""
    threads, release = Threads(), threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await threads.run("run-1:18", release.wait, is_asked_for=is_asked_for)
    release.set()
    await threads.returned("run-1:18")
    assert (threads.late("run-1:18") is not None) == is_asked_for


async def test_a_thread_that_cannot_be_started_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may be out of threads for a moment: the next attempt must not wait for one that never was."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads()
    with monkeypatch.context() as patch:
        patch.setattr(threads_module, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await threads.run("run-1:18", int)
    assert not threads.is_running("run-1:18")
    async with asyncio.timeout(5):
        await threads.returned("run-1:18")
        assert await threads.run("run-1:18", int) == 0
