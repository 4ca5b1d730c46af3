"""Cases of docs/cases.md: a process dies at the worst moment of a tool call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import ABSENT, Agent, App, Recovery, ToolContext, tool
from runfold.core.events import Interrupted, LogRecordBody, ToolCallRequested, ToolReturned, WaitReason
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.cases.dying import DyingLog
from tests.runtime.apps import hang, one_tool_app, settled
from tests.runtime.book import KeyedBook

CLASSES = [Recovery.RERUN, Recovery.KEYED, Recovery.LOOKUP, Recovery.MANUAL]


def _is_outcome(record: LogRecordBody) -> bool:
    return isinstance(record, ToolReturned)


async def _never_there(_: ToolContext[None]) -> Any:
    """A lookup that would have the call executed again."""
    return ABSENT


@pytest.mark.parametrize("recovery", CLASSES)
@pytest.mark.parametrize("is_compacted", [True, False], ids=["compactor", "no-compactor"])
def test_killed_between_tool_returned_and_the_next_append(recovery: Recovery, *, is_compacted: bool) -> None:
    """Twenty-five moments from the outcome's landing on: the tool was called once, and its outcome is there once."""
    died_before_next = 0

    async def main(turns: int) -> bool:
        book = KeyedBook()

        async def act(ctx: ToolContext[None]) -> str:
            return str(book.apply(ctx.idempotency_key, "done"))

        lookup = _never_there if recovery is Recovery.LOOKUP else None
        app = one_tool_app(recovery, act, lookup=lookup)
        async with Cluster.running(partitions=1, compacting=is_compacted) as cluster:
            log = DyingLog(cluster.broker, _is_outcome, turns)
            log.process = await cluster.start_executor(app, "p0", log)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: log.is_dead)
            is_last = cluster.types("r1")[-1] == "ToolReturned"
            await cluster.start_executor(app, "p1")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert book.effects == {"r1:2": 1}
            assert cluster.types("r1").count("ToolReturned") == 1
            return is_last

    for turns in range(25):
        died_before_next += run_virtual(main(turns))
    # The next request goes out with the outcome: only a process that dies in that very moment leaves it out.
    assert died_before_next >= 1


def _gated(book: KeyedBook, recovery: Recovery, script: list[Any], *, dies: bool) -> App:
    async def act(ctx: ToolContext[None], body: str) -> str:
        """Publish."""
        result = str(book.apply(ctx.idempotency_key, body))
        return await hang(ctx) if dies and ctx.attempt == 1 and body == "b" else result

    publish = tool(recovery=recovery, needs_approval=True)(act)
    if recovery is Recovery.LOOKUP:

        @publish.lookup
        async def find(ctx: ToolContext[None], body: str) -> Any:
            """Find."""
            return book.results.get(ctx.idempotency_key, ABSENT) if body else ABSENT

    return App([Agent("a", model=ScriptedModel(script), instructions="", tools=[publish])])


@pytest.mark.parametrize("recovery", [Recovery.KEYED, Recovery.LOOKUP, Recovery.MANUAL])
def test_a_crash_right_after_an_approved_effect(recovery: Recovery) -> None:
    """The effect is there and the process is not: no second effect, no second approval of the same call."""
    book = KeyedBook()

    async def main() -> None:
        app = _gated(book, recovery, [("act", {"body": "b"}), "done"], dies=True)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            cluster.start_reconciler(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.approve("r1", 2)
            await cluster.until(lambda: book.effects["r1:3"] == 1)
            process.kill()
            await cluster.start_executor(app)
            if recovery is Recovery.MANUAL:
                await cluster.waiting("r1", "indeterminate")
                await asyncio.sleep(600)
            else:
                assert (await cluster.ended("r1")).ended is Status.COMPLETED
            # A KEYED downstream was asked again with the same key, and knows it.
            assert book.effects["r1:3"] == (2 if recovery is Recovery.KEYED else 1)
            assert book.results == {"r1:3": "b"}
            gates = [e for e in cluster.events("r1") if isinstance(e, Interrupted) and e.reason == "awaiting_approval"]
            assert [gate.wait_id for gate in gates] == ["r1:2"]

    run_virtual(main())


def test_other_arguments_need_another_approval() -> None:
    """The approval of one call, sent again after a crash, opens no other: the next gate waits for its own."""
    book = KeyedBook()

    async def main() -> None:
        script = [("act", {"body": "b"}), ("act", {"body": "c"}), "done"]
        app = _gated(book, Recovery.KEYED, script, dies=True)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.approve("r1", 2)
            await cluster.until(lambda: book.effects["r1:3"] == 1)
            process.kill()
            await cluster.start_executor(app)
            await cluster.until(lambda: (state := cluster.state("r1")) is not None and "r1:5" in state.waits)
            again, other = await cluster.approve("r1", 2), await cluster.approve("r1", 2, by="erin")
            assert (await settled(cluster, "r1", again, TOPICS.approvals)).outcome == "duplicate"
            assert (await settled(cluster, "r1", other, TOPICS.approvals)).reason == "not_open"
            await asyncio.sleep(600)
            assert book.results == {"r1:3": "b"}
            await cluster.approve("r1", 5)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert book.results == {"r1:3": "b", "r1:6": "c"}
            asked = [e for e in cluster.events("r1") if isinstance(e, ToolCallRequested)]
            assert [(e.step, e.attempt, e.approval_id) for e in asked] == [
                (3, 1, "r1:2"),
                (3, 2, "r1:2"),
                (6, 1, "r1:5"),
            ]
            gates = [e for e in cluster.events("r1") if isinstance(e, Interrupted)]
            assert {gate.reason for gate in gates} == {WaitReason.AWAITING_APPROVAL}

    run_virtual(main())
