"""Objects, logs and topics that are gone or not what they were: held or refused, with the words that help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.core.payload import Inline
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import everything, model_app
from tests.runtime.book import KeyedBook
from tests.runtime.disasters import (
    a_few_runs,
    refused,
    told_at_its_end,
    wait_out_of_memory,
)

# --- the object store -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed_by", ["a tool", "the model"])
@pytest.mark.parametrize("recovery", [Recovery.RERUN, Recovery.KEYED, Recovery.MANUAL])
def test_a_missing_object_holds_its_run_and_its_return_lifts_it(needed_by: str, recovery: Recovery) -> None:
    """It was certainly not performed: it is not in doubt, not failed, and not repeated; a neighbour goes on."""
    book = KeyedBook()

    async def main() -> None:
        model = ScriptedModel([("act", {"text": "x" * 2000}), "end"])

        @tool(recovery=recovery, needs_approval=True)
        async def act(ctx: ToolContext[None], text: str) -> Any:
            """Act."""
            return book.apply(ctx.idempotency_key, len(text))

        neighbour = Agent("b", model=ScriptedModel(["end"]), instructions="")
        app = App([Agent("a", model=model, instructions="", tools=[act]), neighbour])
        async with Cluster.running(partitions=1, inline_limit=1000) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a", "y" * 2000)
            await wait_out_of_memory(cluster, process, "r1")
            blobs = cluster.blobs.stored
            wanted = b"x" * 100 if needed_by == "a tool" else b"y" * 100
            lost = {name: blobs.pop(name) for name, data in list(blobs.items()) if wanted in data}
            assert lost
            await cluster.approve("r1", 2)
            state = await cluster.waiting("r1", "error")
            detail = state.operational_wait()
            assert detail is not None
            assert isinstance(detail.detail, Inline)
            assert any(name.encode() in detail.detail.data for name in lost)
            assert b"runfold resume r1 --by NAME" in detail.detail.data
            await cluster.start("near", "b", "z" * 2000)
            await cluster.ended("near")
            blobs.update(lost)
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())
    assert book.effects == {"r1:3": 1}


# --- the log --------------------------------------------------------------------------------------------------------


def test_a_truncated_log_is_refused_however_often_an_executor_is_started_again() -> None:
    """Each start refuses before it claims: claims would make the log as long as it was, and the loss invisible."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            cluster.broker.truncate(TOPICS.log, 0, end - 3)
            for _ in range(5):
                message = await refused(cluster, model_app("done"))
                assert f"ends at {end - 3}" in message
                assert "r2" in message
                assert "runfold rebuild --partition 0 --accept-loss" in message
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == end - 3

    run_virtual(main())


def test_a_log_that_was_truncated_and_has_grown_again_is_refused() -> None:
    """As long as before or longer: the record that was applied last is not the one that stands there."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            spare = cluster.broker.slice(TOPICS.log, 0, 0, 5)
            cluster.broker.truncate(TOPICS.log, 0, end - 3)
            for record in spare:
                cluster.broker.append(TOPICS.log, 0, record.key, record.value, record.headers)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] > end
            assert "has grown again" in await refused(cluster, model_app("done"))

    run_virtual(main())


def test_a_log_truncated_under_an_idle_owner_is_noticed() -> None:
    """It appends nothing, so no acknowledgement tells; it looks every few seconds."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            process = await cluster.start_executor(model_app("done"))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            cluster.broker.truncate(TOPICS.log, 0, cluster.broker.bounds(TOPICS.log, 0)[1] - 1)
            async with asyncio.timeout(20):
                assert "was truncated: it ends at" in await told_at_its_end(cluster, process)

    run_virtual(main())


@pytest.mark.parametrize("topic", [TOPICS.log, *TOPICS.inputs])
def test_a_topic_that_was_deleted_and_made_again_is_refused(topic: str) -> None:
    """The log by its id; an input topic too: its positions would skip what is new, or read again what was settled."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cluster.broker.recreate(topic)
            records = len(everything(cluster)) if topic != TOPICS.log else 0
            for number in range(50):
                value = codec_inputs.encode_start(f"n{number}", "a", "go")
                cluster.broker.append(topic, 0, f"n{number}".encode(), value)
            message = await refused(cluster, model_app("done"))
            assert "another" in message
            assert topic in message or topic == TOPICS.log
            assert topic == TOPICS.log or len(everything(cluster)) == records

    run_virtual(main())
