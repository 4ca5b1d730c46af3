"""The harness on every loop, and with tools that are not virtual: threads, and sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest
import uvloop
from aiohttp import web

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import Harness, ScriptedModel, run
from runfold.testing.harness import loop
from tests.harness.agents import World, app_of, everything


async def _play() -> str:
    async with Harness(everything, world=World) as harness:
        harness.crash(after="tool_call_requested", step=4)
        run_id = await harness.start("agent", "go")
        await harness.approve(run_id)
        output: str = await harness.result(run_id)
        assert harness.world.payments == [("run-1:8", 3)]
        return output


def _uvloop() -> str:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_play())


@pytest.mark.parametrize(
    "play",
    [lambda: asyncio.run(_play()), _uvloop, lambda: anyio.run(_play), lambda: run(_play())],
    ids=["asyncio.run", "uvloop", "anyio", "runfold.testing.run"],
)
def test_any_asyncio_loop_will_do(play: Callable[[], str]) -> None:
    """The same scenario, with the same outcome."""
    assert play() == "The end."


def test_on_its_own_loop_a_scenario_repeats_itself() -> None:
    """``runfold.testing.run``: two runs, the same events at the same times."""

    async def play() -> list[object]:
        async with Harness(everything, world=World) as harness:
            harness.crash(before="tool_returned", step=5)
            run_id = await harness.start("agent", "go")
            await asyncio.sleep(60)
            await harness.approve(run_id)
            await harness.result(run_id)
            return list(await harness.events(run_id))

    assert run(play()) == run(play())


def test_two_harnesses_at_once() -> None:
    """Each has its own runtime and its own time."""

    async def play() -> list[str]:
        return list(await asyncio.gather(_play(), _play()))

    assert asyncio.run(play()) == ["The end."] * 2


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a ticket API on a real socket; gives its address, and the keys that it was sent."""
    keys: list[str] = []

    async def tickets(request: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        key = request.headers["Idempotency-Key"]
        keys.append(key)
        return web.json_response({"id": f"T-{key}"})

    site = web.Application()
    site.router.add_post("/tickets", tickets)
    runner = web.AppRunner(site)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/tickets", keys
    finally:
        await runner.cleanup()


def _posting(url: str) -> App:
    @asynccontextmanager
    async def lifespan(_: str) -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession() as session:
            yield session

    @tool(recovery=Recovery.KEYED, timeout=5.0)
    async def ticket(ctx: ToolContext[aiohttp.ClientSession]) -> str:
        """Open a ticket."""
        headers = {"Idempotency-Key": ctx.idempotency_key}
        async with ctx.deps.post(url, headers=headers) as response:
            answer: dict[str, str] = await response.json()
            return answer["id"]

    agent = Agent("agent", model=ScriptedModel([("ticket", {}), ("ticket", {}), "ok"]), instructions="", tools=[ticket])
    return App([agent], lifespan=lifespan)


async def _post_tickets() -> None:
    async with _server() as (url, keys), Harness(_posting(url)) as harness:
        run_id = await harness.start("agent", "go")
        assert await harness.result(run_id) == "ok"
        assert keys == ["run-1:2", "run-1:4"]
        # The client keeps its connection open: that does not make time real.
        began = time.monotonic()
        await harness.advance(days=3)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("play", [asyncio.run, run], ids=["asyncio.run", "runfold.testing.run"])
def test_tools_may_really_talk(play: Callable[[Awaitable[None]], None]) -> None:
    """A real socket, a server in the test: no time-out comes early, no wait takes long."""
    play(_post_tickets())


def _in_thread(work: Callable[[str], None]) -> App:
    @tool(recovery=Recovery.KEYED, timeout=5.0)
    def sync(ctx: ToolContext[None]) -> str:
        """Work in the SDK's thread."""
        time.sleep(0.2)
        work(ctx.idempotency_key)
        return "done"

    @tool(recovery=Recovery.KEYED, timeout=5.0)
    async def to_thread(ctx: ToolContext[None]) -> str:
        """Work in a thread of asyncio's."""
        await asyncio.to_thread(time.sleep, 0.2)
        work(ctx.idempotency_key)
        return "done"

    @tool(recovery=Recovery.KEYED, timeout=5.0)
    async def foreign(ctx: ToolContext[None]) -> str:
        """Work in a thread that nobody tells of."""
        await anyio.to_thread.run_sync(time.sleep, 0.1)
        work(ctx.idempotency_key)
        return "done"

    script: list[Any] = [("sync", {}), ("to_thread", {}), ("foreign", {}), "ok"]
    return app_of([sync, to_thread, foreign], script)


@pytest.mark.parametrize("soon_s", [1.0, 0.05], ids=["it ends at once", "it takes longer"])
def test_a_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch, soon_s: float) -> None:
    """Virtual time does not run away from real work: nothing is timed out, nothing executed twice."""
    monkeypatch.setattr(loop, "_THREAD_S", soon_s)
    keys: list[str] = []

    async def play() -> None:
        async with Harness(_in_thread(keys.append)) as harness:
            assert await harness.result(await harness.start("agent", "go")) == "ok"

    asyncio.run(play())
    assert keys == ["run-1:2", "run-1:4", "run-1:6"]


async def test_a_test_that_only_polls_gets_there() -> None:
    """While nobody waits for the harness, its time passes as in real life."""

    @tool(recovery=Recovery.RERUN)
    async def wait(ctx: ToolContext[None]) -> str:
        """Wait a little."""
        await asyncio.sleep(0.1)
        return ctx.run_id

    async with Harness(app_of([wait], [("wait", {}), "ok"])) as harness:
        run_id = await harness.start("agent", "go")
        async with asyncio.timeout(20):
            while (await harness.show(run_id))["status"] != "completed":  # noqa: ASYNC110 - what the test is about
                await asyncio.sleep(0.02)
