"""A ``runfold rebuild`` that was broken off holds up everybody, and running it again finishes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runfold.adapters.memory.broker import Stored
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.core.events import InputSettled, Settlement, WaitReason
from runfold.ports.log import AppendFailed, OnAck
from runfold.ports.publisher import Published
from runfold.runtime.rebuild import damage, rebuilding
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import everything, model_app, planless
from tests.runtime.disasters import (
    a_few_runs,
    at_rest,
    refused,
)
from tests.runtime.rebuild.rebuilds import rebuild, what_holds, world_of


class Broken(MemoryLog):
    """A log in which the first ``left`` records land, and nothing after them."""

    left = 1

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        self.left -= 1
        if self.left >= 0:
            super()._land(partition, record, on_ack)
        else:
            self._acknowledge(partition, on_ack, AppendFailed("broken off"))


class BrokenOff(MemoryPublisher):
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


def test_a_rebuild_that_was_broken_off_holds_up_everybody_until_it_is_done() -> None:
    """Services refuse the partition and say why; running it again finishes it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cluster.nodes[0].kill()
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            cluster.broker.truncate(TOPICS.log, 0, end - 2)
            world = world_of(cluster)
            plan = await damage.examine(world, 0, accept_loss=True)
            broken = replace(world, publisher=world.publisher, log=Broken(cluster.broker))
            with pytest.raises(AppendFailed):
                await rebuilding.carry_out(broken, plan)
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
            broken = Broken(cluster.broker)
            broken.left = 3
            with pytest.raises(AppendFailed):
                await rebuilding.carry_out(replace(world, log=broken), await damage.examine(world, 0, accept_loss=True))
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            await rebuild(cluster, accept_loss=True)
            assert cluster.types("r1") == ["RunStarted", "Interrupted", "Resumed", "Interrupted"]
            reason, detail = what_holds(cluster, "r1")
            assert reason is WaitReason.ERROR
            assert "the log lost records" in detail

    run_virtual(main())


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
            plan = await damage.examine(world, 0, accept_loss=True)
            with pytest.raises(RuntimeError, match="broken off"):
                await rebuilding.carry_out(replace(world, publisher=BrokenOff(cluster.broker)), plan)
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
