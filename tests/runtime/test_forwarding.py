"""Inputs in the wrong partition: forwarded through ``control``, with one effect."""

from __future__ import annotations

from typing import Any, ClassVar

from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.codec.input_types import VerdictInput
from runfold.core.events import InputSettled, Settlement
from runfold.core.partitioning import partition_of
from runfold.ports.publisher import Published, PublishFailed
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import (
    claims,
    last_settled,
    model_app,
    planless,
    settled,
)

WRONG = 1 - partition_of("r1", 2)


def test_a_misplaced_input_is_forwarded_and_has_one_effect() -> None:
    """It is settled where it was put, and its copy starts the run under the original's id."""

    async def main() -> None:
        async with Cluster.running(partitions=2) as cluster:
            await cluster.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "go")
            offset = await cluster.send(TOPICS.requests, "r1", value, partition=WRONG)
            await cluster.ended("r1")
            cause = cluster.events("r1")[0].cause
            assert cause is not None
            assert cause.topic == TOPICS.control
            assert cause.id == f"{TOPICS.requests}/{WRONG}/{offset}"

    run_virtual(main())


def test_a_forwarded_copy_that_a_crash_sent_twice_has_one_effect() -> None:
    """The copy is acknowledged, the record that settles the original is lost: it is forwarded again.

    The input is a resume, and the run fails again after the first copy: without the origin's id the second one would
    lift that too.
    """

    async def main() -> None:
        app, model = planless()
        async with Cluster.running(partitions=2) as cluster:
            log = FaultyLog(cluster.broker)
            log.lose = lambda record: isinstance(record, InputSettled) and record.outcome is Settlement.FORWARDED
            await cluster.start_executor(app, "p0", log)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")
            resume = codec_inputs.encode_resume("r1", "ops")
            await cluster.send(TOPICS.requests, "r1", resume, partition=WRONG)
            second = await settled(cluster, "r1", 1, TOPICS.control)
            assert second.outcome == "duplicate"
            assert cluster.broker.bounds(TOPICS.control, 1 - WRONG) == (0, 2)
            assert cluster.types("r1").count("Resumed") == 1
            assert model.calls[0] == 2

    run_virtual(main())


def test_an_origin_outside_control_means_nothing() -> None:
    """Anybody may write headers into the other topics: they must not choose an input's id."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done"))
            await MemoryPublisher(cluster.broker).publish(
                TOPICS.requests,
                b"r1",
                codec_inputs.encode_start("r1", "a", "go"),
                headers=(("rf-origin", f"{TOPICS.requests}/0/7".encode()),),
            )
            await cluster.ended("r1")
            cause = cluster.events("r1")[0].cause
            assert cause is not None
            assert cause.id is None

    run_virtual(main())


def test_an_input_in_the_wrong_partition_of_control_is_dead() -> None:
    """Only we write there: forwarding it on could go round for ever."""

    async def main() -> None:
        async with Cluster.running(partitions=2) as cluster:
            await cluster.start_executor(model_app("done"))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            verdict = VerdictInput(run_id="r1", step=2, attempt=1, outcome="absent", verdict_by="x")
            value = codec_inputs.encode_verdict(verdict)
            offset = await cluster.send(TOPICS.control, "r1", value, partition=WRONG)
            other = next(f"x{n}" for n in range(9) if partition_of(f"x{n}", 2) == WRONG)
            await cluster.until(lambda: last_settled(cluster, other, offset, TOPICS.control))
            dead = last_settled(cluster, other, offset, TOPICS.control)
            assert dead is not None
            assert (dead.outcome, dead.reason) == ("dead", "wrong_partition")
            assert cluster.broker.bounds(TOPICS.control, 1 - WRONG) == (0, 0)

    run_virtual(main())


class WeakPublisher(MemoryPublisher):
    """Fails the next ``failures`` times that it is to publish into ``control``."""

    failures: ClassVar[int] = 0

    async def publish(self, topic: str, *given: Any, **named: Any) -> Published:
        """Publish, or not."""
        if topic == TOPICS.control and WeakPublisher.failures:
            WeakPublisher.failures -= 1
            raise PublishFailed("broker away")
        return await super().publish(topic, *given, **named)


def test_forwarding_is_tried_again_in_the_same_epoch() -> None:
    """The topic cannot be written for a while: the input waits, its partition is not given up."""

    async def main() -> None:
        WeakPublisher.failures = 5
        async with Cluster.running(partitions=2, publisher=WeakPublisher) as cluster:
            await cluster.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "go")
            await cluster.send(TOPICS.requests, "r1", value, partition=WRONG)
            await cluster.ended("r1")
            assert WeakPublisher.failures == 0
            assert claims(cluster, 0) == claims(cluster, 1) == 1

    run_virtual(main())


def test_an_input_that_is_too_large_to_be_forwarded_is_dead() -> None:
    """It holds up neither its partition nor the inputs behind it."""

    async def main() -> None:
        async with Cluster.running(partitions=2) as cluster:
            await cluster.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "x" * 1_000_000)
            offset = cluster.broker.append(TOPICS.requests, WRONG, b"r1", value, (("trace", b"y" * 260_000),))
            behind = await cluster.send(TOPICS.requests, "r1", codec_inputs.encode_start("r1", "a", "z"), WRONG)
            await cluster.ended("r1")
            other = next(f"x{n}" for n in range(9) if partition_of(f"x{n}", 2) == WRONG)
            dead = last_settled(cluster, other, offset, TOPICS.requests)
            assert dead is not None
            assert (dead.outcome, dead.reason) == ("dead", "too_large")
            assert (await settled(cluster, other, behind, TOPICS.requests)).outcome == "forwarded"

    run_virtual(main())
