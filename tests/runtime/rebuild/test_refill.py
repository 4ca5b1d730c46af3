"""``runfold rebuild`` uses up settled offsets of an input topic: nothing is lost, repeated or waited for in vain."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runfold.codec import inputs as codec_inputs
from runfold.core.positions import Position
from runfold.core.state import Status
from runfold.runtime.identity import refilling, unhandled_from
from runfold.runtime.rebuild import mending
from runfold.runtime.rebuild.plan import examine
from runfold.runtime.rebuild.refilling import refill
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import model_app, planless
from tests.runtime.disasters import a_few_runs, at_rest
from tests.runtime.rebuild.rebuilds import world_of
from tests.runtime.test_gaps import InputsWithHoles, mark


@pytest.mark.parametrize("how", ["log_tail_lost", "inputs_remade"])
def test_a_marker_that_stands_last_is_not_waited_for(how: str) -> None:
    """No reader gives it; what stands before it is treated as ever, and the topic can be read on."""

    async def main() -> None:
        async with Cluster.running(partitions=1, inputs=InputsWithHoles) as cluster:
            await a_few_runs(cluster, 3)
            cluster.nodes[0].kill()
            if how == "log_tail_lost":
                end = cluster.broker.bounds(TOPICS.log, 0)[1]
                cluster.broker.truncate(TOPICS.log, 0, end - 2)
                await cluster.start("r9", "a")
            else:
                cluster.broker.recreate(TOPICS.requests)
                for run_id in ("r8", "r9"):
                    await cluster.start(run_id, "a")
            mark(cluster.broker)
            world = replace(world_of(cluster), inputs=InputsWithHoles(cluster.broker))
            plan = await examine(world, 0, accept_loss=True)
            async with asyncio.timeout(600):
                await mending.carry_out(world, plan)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            if how == "log_tail_lost":
                await cluster.waiting("r9", "error")
            else:
                assert (await cluster.ended("r9")).ended is Status.COMPLETED
            await cluster.start("later", "a")
            await cluster.ended("later")

    run_virtual(main())


@pytest.mark.parametrize(("unhandled_from", "again"), [(0, [0, 3]), (1, [3])])
def test_only_what_was_never_handled_and_never_will_be_is_sent_again(unhandled_from: int, again: list[int]) -> None:
    """What stands on an offset that is not settled is handled where it is: a copy would be a second effect."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            for number in range(4):
                await cluster.request("r1", codec_inputs.encode_resume("r1", f"person {number}"))
            world = world_of(cluster)
            settled = Position(1, {3})
            await refill(world.inputs, world.publisher, 0, TOPICS.requests, settled, unhandled_from=unhandled_from)
            begin, end = cluster.broker.bounds(TOPICS.requests, 0)
            records = cluster.broker.slice(TOPICS.requests, 0, begin, end)
            people = [b"person %d" % number for number in [0, 1, 2, 3, *again]]
            assert len(records) == len(people)
            assert all(who in (record.value or b"") for who, record in zip(people, records, strict=True))

    run_virtual(main())


def test_an_input_on_an_offset_that_was_never_settled_has_one_effect() -> None:
    """The topic is made again while the log's positions have a hole, in which a resume comes to stand."""
    app, _ = planless()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")
            await at_rest(cluster, process)
            cluster.broker.recreate(TOPICS.requests)
            await cluster.start("early", "a")
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            world = world_of(cluster)
            plan = await examine(world, 0, accept_loss=True)
            # As if offset 2 of the topic that is gone had been settled, and not the one before it.
            assert plan.replay is not None
            assert plan.replay.fence.positions.settle(TOPICS.requests, 2)
            await mending.carry_out(world, plan)
            cluster.start_compactor()
            await cluster.start_executor(app)
            await asyncio.sleep(60)
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            assert cluster.types("early") == ["RunStarted", "Interrupted"]

    run_virtual(main())


def test_where_inputs_are_new_is_said_of_one_topic() -> None:
    """A topic that is made again meanwhile is another one: nothing in it was handled, wherever it stands."""
    assert unhandled_from(refilling(7, "id"), "id") == 7
    assert unhandled_from(refilling(7, "id"), "another") is None
    assert unhandled_from("id", "id") is None
