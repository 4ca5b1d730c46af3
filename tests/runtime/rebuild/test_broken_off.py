"""A ``runfold rebuild`` that was broken off holds up everybody, and running it again finishes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.core.events import InputSettled, Settlement, WaitReason
from runfold.core.state import Status
from runfold.ports.log import AppendFailed
from runfold.ports.publisher import Published
from runfold.runtime.rebuild import mending
from runfold.runtime.rebuild.plan import Refused, examine
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import everything, model_app, planless
from tests.runtime.disasters import a_few_runs, at_rest, refused
from tests.runtime.rebuild.rebuilds import DyingLog, DyingPublisher, rebuild, what_holds, world_of


def test_a_rebuild_that_was_broken_off_holds_up_everybody_until_it_is_done() -> None:
    """Services refuse the partition and say why; running it again finishes it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cluster.nodes[0].kill()
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            cluster.broker.truncate(TOPICS.log, 0, end - 2)
            world = world_of(cluster)
            plan = await examine(world, 0, accept_loss=True)
            with pytest.raises(AppendFailed):
                await mending.carry_out(replace(world, log=DyingLog(cluster.broker, left=1)), plan)
            assert "is being rebuilt" in await refused(cluster, model_app("done"))
            await rebuild(cluster, accept_loss=True)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            await cluster.start("r9", "a")
            await cluster.ended("r9")

    run_virtual(main())


def test_a_run_held_by_an_error_says_that_what_came_after_it_is_lost() -> None:
    """Its resume may be lost: who looks is not shown the old error alone. Broken off and run again, it is held once."""
    app, _ = planless()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            await at_rest(cluster, process)
            cluster.broker.truncate(TOPICS.log, 0, end)
            world = world_of(cluster)
            broken = DyingLog(cluster.broker, left=3)
            with pytest.raises(AppendFailed):
                await mending.carry_out(replace(world, log=broken), await examine(world, 0, accept_loss=True))
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            await rebuild(cluster, accept_loss=True)
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            reason, detail = what_holds(cluster, "r1")
            assert reason is WaitReason.ERROR
            assert "the log lost records" in detail

    run_virtual(main())


class DiesBehindACopy(MemoryPublisher):
    """A publisher whose process dies right after an input was sent again."""

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
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if value is not None:
            raise RuntimeError("broken off")
        return published


def test_an_input_that_is_sent_again_twice_has_one_effect() -> None:
    """The refill is broken off and run again: the second copy of an early input is a duplicate, and no run is held."""
    app, _ = planless()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            for run_id in ("r1", "r2", "r3"):
                await cluster.start(run_id, "a")
                await cluster.waiting(run_id, "error")
            await at_rest(cluster, process)
            cluster.broker.recreate(TOPICS.requests)
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            world = world_of(cluster)
            plan = await examine(world, 0, accept_loss=True)
            with pytest.raises(RuntimeError, match="broken off"):
                await mending.carry_out(replace(world, publisher=DiesBehindACopy(cluster.broker)), plan)
            assert "deleted and made again" in await refused(cluster, app)
            await rebuild(cluster, accept_loss=True)
            cluster.start_compactor()
            await cluster.start_executor(app)
            await asyncio.sleep(60)
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            assert cluster.types("r2") == ["RunStarted", "Interrupted"]
            outcomes = [record.outcome for record in everything(cluster) if isinstance(record, InputSettled)]
            assert outcomes == [Settlement.DUPLICATE]
            # The same text, sent by a person once more, is another input.
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            await cluster.until(lambda: cluster.types("r1").count("Resumed") == 2)

    run_virtual(main())


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

            publisher = DyingPublisher(cluster.broker, left=left, sender=send)
            world = replace(world_of(cluster), publisher=publisher)
            plan = await examine(world, 0, accept_loss=True)
            assert plan.refill == {TOPICS.requests: 4}
            if left == 4:  # an empty record, what is sent, another empty one, and two copies
                await mending.carry_out(world, plan)
            else:
                with pytest.raises(RuntimeError, match="broken off"):
                    await mending.carry_out(world, plan)
                assert "is being rebuilt" in await refused(cluster, app)
                with pytest.raises(Refused, match="is being rebuilt"):
                    await rebuild(cluster)
                publisher.left = 100
                await mending.carry_out(world, await examine(world, 0, accept_loss=True))
            cluster.start_compactor()
            await cluster.start_executor(app)
            await asyncio.sleep(60)
            # A run that may have gone on in what the log lost is held anew: what held it before is closed.
            assert cluster.types("r1").count("Resumed") == (1 if is_log_whole else 2)
            assert cluster.types("early") == ["RunStarted", "Interrupted"]
            outcomes = {record.outcome for record in everything(cluster) if isinstance(record, InputSettled)}
            assert outcomes <= {Settlement.DUPLICATE}

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
                # On an offset that the log does not settle any more, and on one it does.
                for run_id in ("early", "later"):
                    await cluster.start(run_id, "a")

            publisher = DyingPublisher(cluster.broker, left=2, sender=send)
            world = replace(world_of(cluster), publisher=publisher)
            plan = await examine(world, 0, accept_loss=True)
            with pytest.raises(RuntimeError, match="broken off"):
                await mending.carry_out(world, plan)
            assert "is being rebuilt" in await refused(cluster, model_app("done"))
            await rebuild(cluster, accept_loss=True)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            runs = cluster.database.runs
            await cluster.until(lambda: {"early", "later"} <= runs.keys())
            await cluster.until(lambda: all(run.status is Status.COMPLETED for run in runs.values()))

    run_virtual(main())
