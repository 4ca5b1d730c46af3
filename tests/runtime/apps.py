"""Small apps, inputs and questions that the tests of the runtime share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.codec.input_types import VerdictInput
from runfold.core.events import (
    InputSettled,
    LogRecordBody,
    PartitionClaimed,
    RunEvent,
    ToolCallRequested,
    Why,
)
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode

Body = Callable[[ToolContext[None]], Awaitable[Any]]


async def done(_: ToolContext[None]) -> str:
    """Act at once."""
    return "done"


async def hang(_: ToolContext[None]) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


async def never_asked(_: ToolContext[None]) -> str:
    """Fail the test: the lookup is the reconciler's, and no reconciler runs."""
    raise AssertionError("asked")


def one_tool_app(
    recovery: Recovery,
    body: Body,
    *,
    lookup: Body | None = None,
    agent: Mapping[str, Any] | None = None,
    **options: Any,
) -> App:
    """An agent that calls ``act`` once and is done."""

    @tool(recovery=recovery, **options)
    async def act(ctx: ToolContext[None]) -> Any:
        """Act."""
        return await body(ctx)

    if lookup is not None:

        @act.lookup
        async def find(ctx: ToolContext[None]) -> Any:
            """Find."""
            return await lookup(ctx)

    chosen: dict[str, Any] = {"model": ScriptedModel([("act", {}), "done"]), "instructions": "", **(agent or {})}
    return App([Agent("a", tools=[act], **chosen)])


class HangingModel(ScriptedModel):
    """A model whose first ``hangs`` requests are never answered.

    Attributes:
        asked: How often it was asked.
    """

    def __init__(self, hangs: int = 1_000_000) -> None:
        super().__init__(["done"])
        self.asked, self.hangs = 0, hangs

    async def request(self, *given: Any, **named: Any) -> Any:
        """Hang, or answer "done"."""
        self.asked += 1
        if self.asked <= self.hangs:
            await asyncio.Event().wait()
        return await super().request(*given, **named)


def model_app(*script: Any, name: str = "a", **agent: Any) -> App:
    """An agent without tools."""
    return App([Agent(name, model=ScriptedModel(script), instructions="", **agent)])


def planless() -> tuple[App, ScriptedModel]:
    """An agent that is interrupted by an error each time that its model is asked."""
    model = ScriptedModel([ValueError("no"), "x"])

    def planner(_: object) -> Any:
        model.calls[0] += 1
        raise ValueError("no plan")

    return App([Agent("a", model=model, instructions="", planner=planner)]), model


def is_tool_request(record: LogRecordBody) -> bool:
    """A trap for ``FaultyLog``."""
    return isinstance(record, ToolCallRequested)


def requests(cluster: Cluster, run_id: str = "r1") -> list[tuple[int, Why]]:
    """Attempt and reason of each valid tool request."""
    return [(e.attempt, e.why) for e in cluster.events(run_id) if isinstance(e, ToolCallRequested)]


def everything(cluster: Cluster, partition: int = 0) -> list[LogRecordBody]:
    """All records of a log partition, void ones included."""
    begin, end = cluster.broker.bounds(TOPICS.log, partition)
    return [log_codec.decode(r.value or b"") for r in cluster.broker.slice(TOPICS.log, partition, begin, end)]


def claims(cluster: Cluster, partition: int = 0) -> int:
    """How often a partition was claimed."""
    return sum(isinstance(record, PartitionClaimed) for record in everything(cluster, partition))


def written_in(cluster: Cluster, epoch: int, partition: int = 0) -> int:
    """How many records one epoch's writer has written, void ones included."""
    records = everything(cluster, partition)
    return sum(isinstance(r, RunEvent | InputSettled) and r.epoch == epoch for r in records)


def last_settled(cluster: Cluster, run_id: str, offset: int, topic: str | None = None) -> InputSettled | None:
    """How an input was settled, if it was without an event."""
    found = cluster.records(run_id)[1]
    return next((s for s in found if s.cause.offset == offset and topic in (None, s.cause.topic)), None)


async def settled(cluster: Cluster, run_id: str, offset: int, topic: str | None = None) -> InputSettled:
    """Wait for an input to be settled without an event."""
    await cluster.until(lambda: last_settled(cluster, run_id, offset, topic))
    found = last_settled(cluster, run_id, offset, topic)
    assert found is not None
    return found


async def send_verdict(cluster: Cluster, outcome: Any, attempt: int = 1, **fields: Any) -> int:
    """Produce a verdict about step 2 of r1, or of another call; gives its offset in ``control``."""
    named: dict[str, Any] = {"run_id": "r1", "step": 2, "attempt": attempt, "verdict_by": "reconciler", **fields}
    verdict = VerdictInput(outcome=outcome, **named)
    return await cluster.send(TOPICS.control, verdict.run_id, codec_inputs.encode_verdict(verdict))


async def rule_verdict(cluster: Cluster, outcome: Any, attempt: int = 1, **fields: Any) -> str | None:
    """Produce a verdict and wait until it is settled: how, or None for one that caused an event."""
    run_id = fields.get("run_id", "r1")
    offset = await send_verdict(cluster, outcome, attempt, **fields)

    def caused() -> bool:
        causes = [event.cause for event in cluster.events(run_id)]
        return any(c is not None and (c.topic, c.offset) == (TOPICS.control, offset) for c in causes)

    await cluster.until(lambda: caused() or last_settled(cluster, run_id, offset, TOPICS.control))
    found = last_settled(cluster, run_id, offset, TOPICS.control)
    return None if found is None else found.outcome


async def after_a_crash(cluster: Cluster, process: ExecutorNode, calls: int) -> None:
    """Wait until the attempt is requested, and kill its process."""
    await cluster.until(lambda: len(requests(cluster)) == calls)
    await asyncio.sleep(0.1)
    process.kill()
