"""Cases of docs/cases.md: parallel tools."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from runfold import Agent, App, Recovery, Result, ToolContext, tool
from runfold.core.events import ModelCallRequested, ToolReturned
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual

ORDERS = 100
TOOLS = 5


def _parallel(seen: dict[str, set[bytes]]) -> App:
    """An agent whose five tools take random times, and that keeps what its model is shown, without the times."""

    @tool(recovery=Recovery.RERUN)
    async def work(ctx: ToolContext[None], number: int) -> Result[int]:
        """Work."""
        chance = random.Random(f"{ctx.run_id} {number} {ctx.attempt}")  # noqa: S311 - delays, not secrets
        await asyncio.sleep(chance.uniform(0, 10))
        return Result(number, for_model=f"number {number}", patch={"last": number})

    def answer(messages: list[ModelMessage]) -> str:
        shown = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        seen.setdefault("requests", set()).add(_plain(shown).encode())
        return "done"

    script: list[Any] = [[("work", {"number": number}) for number in range(TOOLS)], answer]
    return App([Agent("p", model=ScriptedModel(script), instructions="", tools=[work])])


def _plain(value: Any) -> str:
    match value:
        case dict():
            kept = sorted((key, _plain(item)) for key, item in value.items() if key not in {"timestamp", "run_id"})
            return repr(kept)
        case list():
            return repr([_plain(item) for item in value])
        case _:
            return repr(value)


def test_five_parallel_tools_complete_in_random_order() -> None:
    """A hundred orders, some of them cut by a crash and replayed: the next model request is the same in all."""
    seen: dict[str, set[bytes]] = {}

    async def main() -> None:
        async with Cluster.running(partitions=4) as cluster:
            app = _parallel(seen)
            for number in range(ORDERS):
                await cluster.start(f"r{number}", "p")
            for crash in range(2):
                process = await cluster.start_executor(app, f"p{crash}")
                await asyncio.sleep(14 if crash else 4)  # the second takes over when the session of the first is over
                process.kill()
            await cluster.start_executor(app, "last")
            asked: list[ModelCallRequested] = []
            orders: set[tuple[str, ...]] = set()
            disturbed = 0
            await cluster.until(lambda: len(cluster.database.runs) == ORDERS)
            await cluster.until(lambda: all(run.status is Status.COMPLETED for run in cluster.database.runs.values()))
            for number in range(ORDERS):
                events = cluster.events(f"r{number}")
                asked += [e for e in events if isinstance(e, ModelCallRequested) and e.message_count > 1]
                returned = [e for e in events if isinstance(e, ToolReturned)]
                orders.add(tuple(event.tool_call_id for event in returned))
                disturbed += len({event.epoch for event in returned}) > 1
            assert len(asked) >= ORDERS
            assert len(orders) > ORDERS / 3, "the orders differ too little to show anything"
            assert disturbed > ORDERS / 10, "too few of them were replayed half-way"
            assert len({(event.messages_hash, event.message_count, event.params) for event in asked}) == 1
            assert len(seen["requests"]) == 1

    run_virtual(main())
