"""Who owns a partition, and what an owner may still do when it is lost, handed over, or truncated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import pytest

from runfold import Agent, App, Recovery, ToolContext
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.core.events import CancelRequested, Interrupted, ModelCallRequested, Resumed, ToolReturned, Why
from runfold.core.fence import HEADER, Head, Kind
from runfold.core.payload import BlobRef, Inline
from runfold.core.state import Status
from runfold.ports.inputs import InputRecord
from runfold.ports.log import LogUnrecoverable
from runfold.ports.publisher import Published, PublishFailed
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import (
    HangingModel,
    claims,
    done,
    everything,
    is_tool_request,
    one_tool_app,
    requests,
    written_in,
)


async def death_of(cluster: Cluster, process: ExecutorNode) -> ExceptionGroup[Exception]:
    """Wait for a process to end with an error."""
    cluster.nodes.remove(process)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(60):
            await process.task
    return caught.value


def test_an_append_acknowledged_below_the_expected_offset_ends_the_process() -> None:
    """The log was truncated under its owner: claiming again would build on what is gone."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            process = await cluster.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            cluster.broker.truncate(TOPICS.log, 0, 3)
            await cluster.approve("r1", 2)
            error = await death_of(cluster, process)
            unrecoverable, others = error.split(LogUnrecoverable)
            assert unrecoverable is not None
            assert others is None
            assert claims(cluster) == 1

    run_virtual(main())


def test_a_log_that_ends_before_what_postgres_has_applied_ends_the_process() -> None:
    """Found at the take-over, in a task of the tenure: it is raised, not tried again."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            compactor = cluster.start_compactor()
            first = await cluster.start_executor(one_tool_app(Recovery.KEYED, done))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            await asyncio.sleep(5)
            await first.stop()
            await compactor.stop()
            cluster.broker.truncate(TOPICS.log, 0, 3)
            error = await death_of(cluster, await cluster.start_executor(one_tool_app(Recovery.KEYED, done)))
            assert error.subgroup(LogUnrecoverable) is not None

    run_virtual(main())


def test_an_executor_that_cannot_read_what_settles_an_input_ends() -> None:
    """A newer release has settled it, in a record that this one does not know: taken again, it would have two effects.

    That is said at the take-over; the events of a run that it does not know only park that run.
    """

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            newer = await cluster.start_executor(one_tool_app(Recovery.KEYED, done))
            await cluster.until(lambda: newer.executor.ready)
            newer.kill()
            await cluster.start("r1", "a")
            head = Head(Kind.SETTLED, epoch=0).encode()
            cluster.broker.append(TOPICS.log, 0, None, b"\xc3\x01" + bytes(8), ((HEADER, head),))
            error = await death_of(cluster, await cluster.start_executor(one_tool_app(Recovery.KEYED, done)))
            assert error.subgroup(LogUnrecoverable) is not None
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == 3  # two claims and that record

    run_virtual(main())


class StuckBlobs(MemoryBlobs):
    """An object store whose second reading of a tool's arguments waits until ``free`` is set.

    The first one is made to validate them, the second one to execute the tool.
    """

    def __init__(self) -> None:
        super().__init__()
        self.free, self.stuck = asyncio.Event(), asyncio.Event()
        self._reads = 0

    async def get(self, ref: BlobRef) -> bytes:
        """Read, the first time late."""
        self._reads += ref == Inline(b"{}")
        if self._reads == 2 and not self.stuck.is_set():
            self.stuck.set()
            await self.free.wait()
        return await super().get(ref)


def test_an_effect_that_still_waits_for_a_payload_does_not_start_once_the_partition_is_lost() -> None:
    """Its acknowledgement is fresh, but the tenure is over: only the next owner's attempt is performed."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return "done"

    async def main() -> None:
        blobs = StuckBlobs()
        async with Cluster.running(partitions=1, inline_limit=1, blobs=blobs) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await blobs.stuck.wait()
            p0.membership.expire()
            await asyncio.sleep(0.5)
            blobs.free.set()
            await cluster.ended("r1")
            await asyncio.sleep(1)
            assert calls == [2]

    run_virtual(main())


def test_a_model_is_not_asked_on_an_acknowledgement_that_is_not_fresh() -> None:
    """Its request is appended again instead, and nothing is counted as spent."""
    model = HangingModel(0)

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            log.trap = lambda record: isinstance(record, ModelCallRequested)
            await cluster.start_executor(App([Agent("a", model=model, instructions="")]), "p0", log)
            await cluster.start("r1", "a")
            await cluster.until(lambda: log.hold_acks)
            await asyncio.sleep(6)
            log.release()
            state = await cluster.ended("r1")
            asked = [(e.attempt, e.why) for e in cluster.events("r1") if isinstance(e, ModelCallRequested)]
            assert asked == [(1, Why.FIRST), (2, Why.STALE)]
            assert model.asked == 1
            assert state.unaccounted_calls == 0

    run_virtual(main())


@pytest.mark.parametrize(("held_s", "attempts"), [(2.0, [1]), (3.0, [2])])
def test_a_calls_time_counts_from_the_produce_of_its_request(held_s: float, attempts: list[int]) -> None:
    """What the acknowledgement took is gone from the time-out of 3 s; with all of it gone nothing is started."""
    calls: list[tuple[int, float]] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append((ctx.attempt, ctx.deadline - asyncio.get_running_loop().time()))
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            log.trap = is_tool_request
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act, timeout=3.0), "p0", log)
            await cluster.start("r1", "a")
            await cluster.until(lambda: log.hold_acks)
            await asyncio.sleep(held_s)
            log.release()
            await cluster.ended("r1")
            assert [attempt for attempt, _ in calls] == attempts
            assert calls[0][1] <= 3.0 - (held_s if attempts == [1] else 0.0)

    run_virtual(main())


class NoVerdicts(MemoryPublisher):
    """Cannot write `control`: what a process knows of another one's call stays with it."""

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Publish, elsewhere."""
        if topic == TOPICS.control:
            raise PublishFailed(topic)
        return await super().publish(topic, key, value, headers=headers, partition=partition)


def test_what_a_process_knows_of_a_call_that_is_not_its_own_any_more_is_told_to_the_owner() -> None:
    """P0 loses the partition during a MANUAL call that succeeds: P1 gets the outcome, and nobody has to find out."""
    calls: list[int] = []
    gate = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        await gate.wait()
        return "sent"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, act, timeout=2.0)
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.until(lambda: len(calls) == 1)
            p0.membership.expire()
            gate.set()
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert (returned.source, returned.attempt, returned.result) == ("reconciled", 1, Inline(b'"sent"'))
            assert [event for event in cluster.events("r1") if isinstance(event, Interrupted)] == []
            assert calls == [1]

    run_virtual(main())


def test_an_outcome_that_survived_beats_an_indeterminate_that_nobody_has_resolved() -> None:
    """P0 loses the partition during a MANUAL call that succeeds; P1 calls it indeterminate; it comes back to P0.

    By then the run is at rest behind a snapshot: P0 drives it all the same, because it holds an outcome for it.
    """
    calls: list[int] = []
    gate = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        await gate.wait()
        return "sent"

    async def main() -> None:
        async with Cluster.running(partitions=1, publisher=NoVerdicts) as cluster:
            app = one_tool_app(Recovery.MANUAL, act, timeout=2.0)
            p0 = await cluster.start_executor(app, "p0")
            p1 = await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.until(lambda: len(calls) == 1)
            p0.membership.expire()
            gate.set()
            state = await cluster.waiting("r1", "indeterminate")
            await cluster.until(lambda: state.seq in cluster.database.snapshots["r1"])
            await asyncio.sleep(5)
            await p1.stop()
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert (returned.source, returned.attempt, returned.result) == ("call", 1, Inline(b'"sent"'))
            assert [event.reason for event in cluster.events("r1") if isinstance(event, Resumed)] == ["indeterminate"]
            assert calls == [1]

    run_virtual(main())


def test_a_surviving_outcome_that_knows_nothing_leaves_the_call_in_doubt() -> None:
    """As above, but the call fails: the person who was asked is still asked, and the run is not poisoned."""
    gate = asyncio.Event()

    async def act(_: ToolContext[None]) -> str:
        await gate.wait()
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, act, timeout=2.0)
            p0 = await cluster.start_executor(app, "p0")
            p1 = await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            p0.membership.expire()
            gate.set()
            await cluster.waiting("r1", "indeterminate")
            await p1.stop()
            await asyncio.sleep(60)
            assert [e.reason for e in cluster.events("r1") if isinstance(e, Interrupted)] == ["indeterminate"]
            assert p0.executor.parked == {}
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "result", "ops", result=1))
            await cluster.ended("r1")

    run_virtual(main())


def test_an_owner_that_hangs_in_its_claim_is_ended_by_the_hand_over() -> None:
    """The log acknowledges nothing: a revocation takes at most the time to drain, and the process can stop."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            log.hold_acks = True
            process = await cluster.start_executor(one_tool_app(Recovery.KEYED, done), "p0", log)
            await cluster.until(lambda: log.held_acks == 1)
            async with asyncio.timeout(30):
                await process.stop()

    run_virtual(main())


def test_an_owner_whose_partition_is_lost_does_nothing_more() -> None:
    """It neither reads inputs nor claims again: the new owner is not disturbed."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, done)
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            p0.membership.expire()
            await cluster.until(lambda: claims(cluster) == 2)
            await cluster.start("r2", "a")
            await cluster.ended("r2")
            await asyncio.sleep(60)
            assert claims(cluster) == 2

    run_virtual(main())


def test_a_zombies_void_records_do_not_end_the_epoch() -> None:
    """A gap without a claim is passed: the owner goes on in its epoch, at once."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            late = next(e for e in cluster.events("r1") if isinstance(e, ModelCallRequested))
            head, value = log_codec.encode(late)
            cluster.broker.append(TOPICS.log, 0, b"r1", value, (("rf", head),))
            await cluster.approve("r1", 2)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert claims(cluster) == 1
            assert sum(isinstance(record, ModelCallRequested) for record in everything(cluster)) == 3

    run_virtual(main())


def test_inputs_that_arrive_during_a_hand_over_are_left_to_the_next_owner() -> None:
    """A draining owner appends outcomes, and takes no new decision."""
    gate = asyncio.Event()

    async def act(_: ToolContext[None]) -> str:
        await gate.wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            stopping = asyncio.create_task(p0.stop())
            await asyncio.sleep(1)
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            await cluster.start("r2", "a")
            await asyncio.sleep(1)
            gate.set()
            await stopping
            epoch = cluster.events("r1")[0].epoch
            assert cluster.types("r1")[-1] == "ToolReturned"
            assert cluster.events("r2") == []
            await cluster.start_executor(app, "p1")
            await cluster.ended("r1")
            [cancel] = [event for event in cluster.events("r1") if isinstance(event, CancelRequested)]
            assert cancel.epoch > epoch
            assert cluster.events("r2")[0].epoch > epoch

    run_virtual(main())


class PausedInputs(MemoryInputs):
    """Inputs that nobody reads before ``go`` is set."""

    go: ClassVar[asyncio.Event]

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Open a paused reader."""
        reader = await super().open(partition, next_offsets)
        following = reader.next

        async def late(max_records: int) -> list[InputRecord]:
            await PausedInputs.go.wait()
            return await following(max_records)

        reader.next = late  # type: ignore[method-assign]
        return reader


def test_a_run_that_was_written_to_in_a_later_epoch_is_not_judged_in_this_one() -> None:
    """P0 has noticed nothing; what Postgres gives it of the run says so: it writes nothing more in its epoch."""

    async def main() -> None:
        PausedInputs.go = asyncio.Event()
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, done, needs_approval=True)
            cluster.inputs = PausedInputs
            p0 = await cluster.start_executor(app, "p0")
            await cluster.until(lambda: p0.executor.ready)
            cluster.inputs = MemoryInputs
            p0.membership.kill()
            await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.until(lambda: "r1" in cluster.database.snapshots)
            PausedInputs.go.set()
            await cluster.until(lambda: claims(cluster) > 2)
            assert written_in(cluster, 0) == 0

    run_virtual(main())
