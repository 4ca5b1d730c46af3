"""TRANSACTIONAL tools: the author's writes and the key commit together, whatever dies or is paused when."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelRetry

from runfold import Recovery, ToolContext
from runfold.adapters.memory.effects import CommitFate
from runfold.codec import inputs as codec_inputs
from runfold.codec.events_json import event_json, shown
from runfold.core.events import Interrupted, RunCancelled, Source, ToolReturned, WaitReason, Why
from runfold.core.state import Status
from runfold.ports.agents import Returned
from runfold.ports.effects import Effect
from runfold.sdk.errors import NoEffectsTable
from runfold.testing.simulation.cluster import Cluster, ExecutorNode
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import hang, one_tool_app, requests

Body = Callable[[ToolContext[None]], Awaitable[Any]]


def app(body: Body, **options: Any) -> Any:
    """An agent that calls one TRANSACTIONAL tool."""
    return one_tool_app(Recovery.TRANSACTIONAL, body, **{"timeout": 10.0, **options})


async def write(ctx: ToolContext[None]) -> str:
    """Write one row, and say so."""
    await ctx.connection.execute("insert", [ctx.attempt])
    return "done"


def returned(cluster: Cluster) -> ToolReturned:
    """The one result."""
    [found] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
    return found


def rows(cluster: Cluster) -> list[Any]:
    """What the tool has written, by the attempt that wrote it."""
    return [params[0] for _, params in cluster.effects_database.committed]


def killing(nodes: list[ExecutorNode]) -> Callable[[Effect], CommitFate]:
    """Kill the first process when it commits: from outside, before it takes another step."""

    def die(_: Effect) -> CommitFate:
        asyncio.get_running_loop().call_soon(nodes[0].kill, context=contextvars.Context())
        return "answered"

    return die


def test_an_app_with_such_tools_does_not_start_without_the_table() -> None:
    async def main() -> None:
        with pytest.raises(NoEffectsTable, match=r"tools act .* need the effects table"):
            async with app(write).running("executor", revision="r"):
                pass
        async with app(write).running("reconciler", revision="r"):
            pass  # it asks lookups only

    run_virtual(main())


def test_the_connection_is_for_transactional_tools_only() -> None:
    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, write))
            await cluster.start("r1", "a")
            state = await cluster.waiting("r1", "indeterminate")
            [wait] = state.waits.values()
            assert "ctx.connection belongs to" in json.loads(wait.detail.data)["error"]  # type: ignore[union-attr]

    run_virtual(main())


@pytest.mark.parametrize("fate", ["answered", "unanswered", "lost"])
def test_a_commit_is_believed_by_what_stands_in_the_table(fate: CommitFate) -> None:
    """Unanswered, and done: found. Unanswered, and not done: executed again. One effect each time."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            cluster.effects_database.fate = lambda effect: fate if effect.attempt == 1 else "answered"
            await cluster.start_executor(app(write))
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert rows(cluster) == [2 if fate == "lost" else 1]
            assert returned(cluster).source is (Source.EFFECTS_TABLE if fate == "unanswered" else Source.CALL)
            assert [why for _, why in requests(cluster)] == [Why.FIRST] + [Why.RETRY] * (fate == "lost")

    run_virtual(main())


def test_a_crash_right_after_the_commit_repeats_nothing() -> None:
    """The new owner asks the table before anything else, without a request: a read needs none."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            nodes: list[ExecutorNode] = []

            cluster.effects_database.fate = killing(nodes)
            nodes.append(await cluster.start_executor(app(write)))
            await cluster.start("r1", "a")
            await cluster.until(lambda: rows(cluster))
            await cluster.start_executor(app(write))
            await cluster.ended("r1")
            assert rows(cluster) == [1]
            assert requests(cluster) == [(1, Why.FIRST)]
            shown_event = event_json(returned(cluster), partition=0, offset=0, value_of=shown)
            assert (shown_event["source"], shown_event["result"]) == ("effects_table", "done")

    run_virtual(main())


def test_a_crash_in_the_tool_runs_it_again() -> None:
    """What the dead one wrote was never committed; its session is ended, and the second execution waits for that."""

    async def act(ctx: ToolContext[None]) -> str:
        result = await write(ctx)
        return await hang(ctx) if ctx.attempt == 1 else result

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            first = await cluster.start_executor(app(act))
            await cluster.start("r1", "a")
            await cluster.until(lambda: cluster.effects_database.held)
            first.kill()
            await cluster.start_executor(app(act))
            await cluster.ended("r1")
            assert rows(cluster) == [2]
            assert requests(cluster)[:2] == [(1, Why.FIRST), (2, Why.TAKEOVER)]

    run_virtual(main())


def test_three_processes_lost_in_the_tool_interrupt_the_run() -> None:
    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            for attempt in (1, 2, 3):
                process = await cluster.start_executor(app(hang, retries=9))
                if attempt == 1:
                    await cluster.start("r1", "a")
                await cluster.until(lambda wanted=attempt: len(requests(cluster)) == wanted)  # type: ignore[misc]
                await asyncio.sleep(1.0)
                process.kill()
            await cluster.start_executor(app(hang))
            await cluster.waiting("r1", "error")
            assert [why for _, why in requests(cluster)] == [Why.FIRST, Why.TAKEOVER, Why.TAKEOVER]
            assert rows(cluster) == []

    run_virtual(main())


@pytest.mark.parametrize("wakes_up_first", [True, False])
def test_a_paused_executor_commits_at_most_once(*, wakes_up_first: bool) -> None:
    """Paused in its transaction: its commit, if it comes first, is found; else it can commit nothing any more."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            go_on = asyncio.Event()

            async def act(ctx: ToolContext[None]) -> str:
                if ctx.attempt == 1:
                    await go_on.wait()
                return await write(ctx)

            zombie = await cluster.start_executor(app(act, timeout=60.0))
            await cluster.start("r1", "a")
            await cluster.until(lambda: cluster.effects_database.held)
            zombie.pause()
            go_on.set()
            await cluster.start_executor(app(act, timeout=60.0))
            await cluster.until(lambda: len(requests(cluster)) > 1)
            if wakes_up_first:
                zombie.resume()
            await cluster.ended("r1")
            zombie.resume()
            await asyncio.sleep(100)
            assert rows(cluster) == [1 if wakes_up_first else 2]
            assert returned(cluster).source is (Source.EFFECTS_TABLE if wakes_up_first else Source.CALL)

    run_virtual(main())


def test_exhausted_retries_close_the_key_before_the_model_is_told() -> None:
    """So that nothing that is still on its way can commit afterwards."""
    calls: list[int] = []

    async def fail(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        await write(ctx)
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app(fail, retries=2))
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert calls == [1, 2, 3]
            assert rows(cluster) == []
            told = returned(cluster)
            assert (told.source, told.is_error) == (Source.EFFECTS_TABLE, True)
            [row] = cluster.effects_database.rows.values()
            assert isinstance(row.returned, Returned)
            assert b"connection reset" in row.returned.result

    run_virtual(main())


def test_what_the_tool_tells_the_model_undoes_its_writes_and_stays() -> None:
    async def refuse(ctx: ToolContext[None]) -> str:
        await write(ctx)
        raise ModelRetry("another account, please")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app(refuse))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert rows(cluster) == []
            assert (returned(cluster).source, returned(cluster).outcome) == (Source.CALL, "retried")
            assert [row.returned is not None for row in cluster.effects_database.rows.values()] == [True]

    run_virtual(main())


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_table_that_does_not_answer_is_asked_five_times(*, comes_back: bool) -> None:
    """Then a person decides; they can say that it never happened, safely: the next attempt meets the key first."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:

            def lose_and_leave(_: Effect) -> CommitFate:
                cluster.effects_database.available = False
                return "unanswered"

            cluster.effects_database.fate = lose_and_leave
            await cluster.start_executor(app(write))
            await cluster.start("r1", "a")
            await cluster.until(lambda: rows(cluster))
            if comes_back:
                await asyncio.sleep(5.0)
            else:
                state = await cluster.waiting("r1", "indeterminate")
                [wait] = state.waits.values()
                assert "5 answers of the effects table" in json.loads(wait.detail.data)["error"]  # type: ignore[union-attr]
            cluster.effects_database.available = True
            if not comes_back:
                await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await cluster.ended("r1")
            assert rows(cluster) == [1]
            assert returned(cluster).source is Source.EFFECTS_TABLE

    run_virtual(main())


@pytest.mark.parametrize("has_committed", [True, False])
def test_a_cancelled_call_of_a_dead_owner_leaves_no_key_open(*, has_committed: bool) -> None:
    """The table knows, or is closed and then knows."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            nodes: list[ExecutorNode] = []

            async def act(ctx: ToolContext[None]) -> str:
                result = await write(ctx)
                await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
                await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
                return result if has_committed else await hang(ctx)

            cluster.effects_database.fate = killing(nodes)
            nodes.append(await cluster.start_executor(app(act)))
            await cluster.start("r1", "a")
            await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
            await asyncio.sleep(1.0)
            nodes[0].kill()
            await cluster.start_executor(app(act))
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == ()
            assert requests(cluster) == [(1, Why.FIRST)]
            assert rows(cluster) == [1] * has_committed
            assert returned(cluster).is_error is not has_committed
            doubts = [e for e in cluster.events("r1") if isinstance(e, Interrupted)]
            assert [e.reason for e in doubts if e.reason is WaitReason.INDETERMINATE] == []

    run_virtual(main())
