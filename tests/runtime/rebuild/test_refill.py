"""``runfold rebuild`` uses up settled offsets of an input topic: nothing is lost, repeated or waited for in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.core.events import InputSettled, Settlement
from runfold.core.positions import Position, Positions
from runfold.core.state import Status
from runfold.ports.publisher import Published
from runfold.runtime.identity import refilling, unhandled_from
from runfold.runtime.rebuild import damage, rebuilding
from runfold.runtime.rebuild.refilling import end_of, refill
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import everything, model_app, planless
from tests.runtime.disasters import a_few_runs, at_rest, refused
from tests.runtime.rebuild.rebuilds import rebuild, world_of
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
            plan = await damage.examine(world, 0, accept_loss=True)
            async with asyncio.timeout(600):
                await rebuilding.carry_out(world, plan)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            if how == "log_tail_lost":
                await cluster.waiting("r9", "error")
            else:
                assert (await cluster.ended("r9")).ended is Status.COMPLETED
            await cluster.start("later", "a")
            await cluster.ended("later")

    run_virtual(main())


class BrokenOff(MemoryPublisher):
    """A publisher whose process dies behind ``left`` records; a sender writes once, behind the first of them."""

    left = 1_000_000
    sender: Callable[[], Awaitable[None]] | None = None

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Append one record."""
        if self.left == 0:
            raise RuntimeError("broken off")
        self.left -= 1
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if self.sender is not None:
            await self.sender()
            self.sender = None
        return published


@pytest.mark.parametrize("is_log_whole", [True, False])
@pytest.mark.parametrize("left", range(5))
def test_what_is_sent_between_the_empty_records_has_one_effect(left: int, *, is_log_whole: bool) -> None:
    """A topic was cut. Wherever the command is broken off, everybody refuses, and running it again loses nothing."""
    app, _ = planless()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            for run_id in ("r1", "r2", "r3", "r4"):
                await cluster.start(run_id, "a")
                await cluster.waiting(run_id, "error")
            await at_rest(cluster, process)
            cluster.broker.truncate(TOPICS.requests, 0, 0)
            if not is_log_whole:
                cluster.broker.truncate(TOPICS.log, 0, cluster.broker.bounds(TOPICS.log, 0)[1] - 1)

            async def send() -> None:
                await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
                await cluster.start("early", "a")

            publisher = BrokenOff(cluster.broker)
            publisher.left, publisher.sender = left, send
            world = replace(world_of(cluster), publisher=publisher)
            plan = await damage.examine(world, 0, accept_loss=True)
            assert plan.refill == {TOPICS.requests: 4}
            if left == 4:  # an empty record, what is sent, another empty one, and two copies
                await rebuilding.carry_out(world, plan)
            else:
                with pytest.raises(RuntimeError, match="broken off"):
                    await rebuilding.carry_out(world, plan)
                assert "is being rebuilt" in await refused(cluster, app)
                with pytest.raises(damage.Refused, match="is being rebuilt"):
                    await rebuild(cluster)
                publisher.left = 100
                await rebuilding.carry_out(world, await damage.examine(world, 0, accept_loss=True))
            cluster.start_compactor()
            await cluster.start_executor(app)
            await asyncio.sleep(60)
            # A run that may have gone on in what the log lost is held anew: what held it before is closed.
            assert cluster.types("r1").count("Resumed") == (1 if is_log_whole else 2)
            assert cluster.types("early") == ["RunStarted", "Interrupted"]
            outcomes = {record.outcome for record in everything(cluster) if isinstance(record, InputSettled)}
            assert outcomes <= {Settlement.DUPLICATE}

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
            plan = await damage.examine(world, 0, accept_loss=True)
            # As if offset 2 of the topic that is gone had been settled, and not the one before it.
            assert plan.replay is not None
            assert plan.replay.fence.positions.settle(TOPICS.requests, 2)
            await rebuilding.carry_out(world, plan)
            cluster.start_compactor()
            await cluster.start_executor(app)
            await asyncio.sleep(60)
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            assert cluster.types("early") == ["RunStarted", "Interrupted"]

    run_virtual(main())


def test_a_log_without_its_beginning_and_without_a_row_remembers_where_inputs_are_new() -> None:
    """Postgres holds nothing of the partition either: a row is made that says so, and everybody refuses."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cut = cluster.broker.bounds(TOPICS.log, 0)[1]
            process = await cluster.start_executor(model_app("done"))
            for run_id in ("r8", "r9"):
                await cluster.start(run_id, "a")
                await cluster.ended(run_id)
            await at_rest(cluster, process)
            cluster.broker.delete_before(TOPICS.log, 0, cut)
            cluster.broker.truncate(TOPICS.requests, 0, 0)
            del cluster.database.partitions[0]

            async def send() -> None:
                for run_id in (
                    "early",
                    "later",
                ):  # on an offset that the log does not settle any more, and on one it does
                    await cluster.start(run_id, "a")

            publisher = BrokenOff(cluster.broker)
            publisher.left, publisher.sender = 2, send
            world = replace(world_of(cluster), publisher=publisher)
            plan = await damage.examine(world, 0, accept_loss=True)
            with pytest.raises(RuntimeError, match="broken off"):
                await rebuilding.carry_out(world, plan)
            assert "is being rebuilt" in await refused(cluster, model_app("done"))
            await rebuild(cluster, accept_loss=True)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            runs = cluster.database.runs
            await cluster.until(lambda: {"early", "later"} <= runs.keys())
            await cluster.until(lambda: all(run.status is Status.COMPLETED for run in runs.values()))

    run_virtual(main())


def test_where_inputs_are_new_is_said_of_one_topic() -> None:
    """A topic that is made again meanwhile is another one: nothing in it was handled, wherever it stands."""
    assert unhandled_from(refilling(7, "id"), "id") == 7
    assert unhandled_from(refilling(7, "id"), "another") is None
    assert unhandled_from("id", "id") is None


@pytest.mark.parametrize(("settled", "end"), [(Position(), 0), (Position(2), 2), (Position(2, {4, 3}), 5)])
def test_nothing_is_settled_from_the_end_on(settled: Position, end: int) -> None:
    """Offsets above a hole are settled too."""
    assert end_of(settled) == end
    assert not Positions({"t": settled}).is_settled("t", end)
