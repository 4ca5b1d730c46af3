"""Directed tests of docs/interleavings.md, as far as they concern executors; each names its number there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise

from runfold import Agent, App, Recovery, ToolContext
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.codec import inputs as codec_inputs
from runfold.core.events import (
    CancelRequested,
    Interrupted,
    LogRecordBody,
    ModelCallRequested,
    ModelResponded,
    ToolReturned,
    Why,
)
from runfold.core.state import Status
from runfold.ports.inputs import InputRecord
from runfold.testing.simulation.cluster import Cluster
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
    rule_verdict,
)
from tests.runtime.book import KeyedBook


def test_1_a_late_claim_leaves_the_partition_with_its_owner() -> None:
    """P0's claim lands behind P1's: P1's epoch is over at its next append, it claims again, and the run ends."""
    book = KeyedBook()

    async def act(ctx: ToolContext[None]) -> str:
        return str(book.apply(ctx.idempotency_key, "done"))

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            zombie_log = FaultyLog(cluster.broker)
            zombie_log.hold_landing = True
            zombie = await cluster.start_executor(app, "p0", zombie_log)
            await cluster.until(lambda: zombie_log.held == 1)
            zombie.membership.kill()
            await cluster.start_executor(app, "p1")
            await cluster.start("r0", "a")
            await cluster.ended("r0")
            zombie_log.release()
            zombie.kill()  # it is not assigned any more and would not work; nobody but p1 is left
            assert claims(cluster) == 2
            await cluster.start("r1", "a")
            state = await cluster.ended("r1")
            assert claims(cluster) == 3
            assert state.ended is Status.COMPLETED
            assert book.effects == {"r0:2": 1, "r1:2": 1}

    run_virtual(main())


def test_2_a_claim_older_than_what_postgres_knows_is_superseded() -> None:
    """P0 claims and pauses before it reads Postgres; P1 works and dies; P0 must claim again, and drive the run.

    No input comes, which would wake P0 up.
    """

    class Deaf(MemoryInputReader):
        async def next(self, _: int) -> list[InputRecord]:
            await asyncio.Event().wait()
            return []

    class DeafInputs(MemoryInputs):
        async def open(self, partition: int, next_offsets: Mapping[str, int]) -> Deaf:
            return Deaf(self._broker, partition, next_offsets)

    async def act(ctx: ToolContext[None]) -> str:
        await asyncio.sleep(1000 if ctx.attempt == 1 else 0)
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act, timeout=3000.0)
            log = FaultyLog(cluster.broker)
            log.hold_acks = True
            cluster.inputs = DeafInputs
            p0 = await cluster.start_executor(app, "p0", log)
            cluster.inputs = MemoryInputs
            await cluster.until(lambda: log.held_acks == 1)
            p0.membership.kill()
            p1 = await cluster.start_executor(app, "p1")
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster) == [(1, Why.FIRST)])
            await cluster.until(lambda: 0 in cluster.database.partitions and cluster.database.partitions[0].epoch > 0)
            await cluster.until(lambda: "r1" in cluster.database.snapshots)
            p1.kill()
            log.release()
            # At once: the look behind the own records, every five seconds, would notice it as well.
            await cluster.until(lambda: claims(cluster) == 3, 3.0)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.TAKEOVER)]

    run_virtual(main())


def test_3_a_zombie_with_a_fresh_acknowledgement_and_a_quick_person_make_one_effect() -> None:
    """MANUAL: the new owner calls it indeterminate, and believes "absent", only timeout + grace after its claim."""
    effects: list[float] = []

    async def act(_: ToolContext[None]) -> str:
        effects.append(asyncio.get_running_loop().time())
        return "sent"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, act, timeout=10.0)
            log = FaultyLog(cluster.broker)
            p0 = await cluster.start_executor(app, "p0", log)
            await cluster.until(lambda: p0.executor.ready)
            log.trap = is_tool_request  # p0 is paused before it hears of its own request
            await cluster.start("r1", "a")
            await cluster.until(lambda: log.hold_acks)
            p0.membership.kill()
            await cluster.start_executor(app, "p1")
            claimed_at = asyncio.get_running_loop().time() + 10
            await cluster.waiting("r1", "indeterminate")
            assert asyncio.get_running_loop().time() >= claimed_at + 10
            log.release()
            await asyncio.sleep(0.1)
            assert not effects, "the zombie acted on an acknowledgement that was not fresh"
            value = codec_inputs.encode_resolve("r1", 2, "absent", "ops")
            await cluster.request("r1", value)
            await cluster.ended("r1")
            assert len(effects) == 1
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.ABSENT)]

    run_virtual(main())


def _lose_five_acknowledgements(log: FaultyLog) -> None:
    """From the first model request's landing on: of the tool's request, and of each that follows a claim."""

    def look(record: LogRecordBody) -> None:
        if isinstance(record, ModelCallRequested):
            log.watch = lambda _: None
            # this one, the completion and the request behind it, then claim and request, each landing all the same
            log.fates.extend(["ok", *["ok", "unknown"] * 5])

    log.watch = look


def test_7_requests_that_were_never_performed_do_not_count_as_crashes() -> None:
    """Five re-claims of one process between request and acknowledgement: attempt + 1 each, and no error."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, act)
            log = FaultyLog(cluster.broker)
            _lose_five_acknowledgements(log)
            await cluster.start_executor(app, "p0", log)
            await cluster.start("r1", "a")
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert len(calls) == 1
            assert [why for _, why in requests(cluster)] == [Why.FIRST, *[Why.STALE] * 5]

    run_virtual(main())


def test_7_what_was_never_performed_does_not_count_when_a_process_really_dies() -> None:
    """Five re-claims, then one crash in the call: it is run again, as after any first crash."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            log = FaultyLog(cluster.broker)
            _lose_five_acknowledgements(log)
            p0 = await cluster.start_executor(app, "p0", log)
            await cluster.start("r1", "a")
            await cluster.until(lambda: len(calls) == 1)
            assert [why for _, why in requests(cluster)] == [Why.FIRST, *[Why.STALE] * 5]
            p0.kill()
            await cluster.start_executor(app, "p1")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert requests(cluster)[-1][1] is Why.TAKEOVER
            assert len(calls) == 2

    run_virtual(main())


def test_8_a_starved_owner_gives_its_epoch_up_after_a_bounded_number_of_stale_requests() -> None:
    """Every acknowledgement comes too late: the owner appends again with back-off, then claims again; it never acts."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.MANUAL, act)
            log = FaultyLog(cluster.broker)
            p0 = await cluster.start_executor(app, "p0", log)
            await cluster.until(lambda: p0.executor.ready)
            log.ack_delay = 6.0
            await cluster.start("r1", "a")
            await cluster.until(lambda: claims(cluster) > 1, 3000)
            assert not calls
            asked = [event.at for event in cluster.events("r1") if isinstance(event, ModelCallRequested)]
            assert [(later - earlier) // 100 / 10 for earlier, later in pairwise(asked)] == [6.2, 6.4, 6.8, 7.6, 9.2]
            log.ack_delay = 0.0
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert len(calls) == 1

    run_virtual(main(), 36000)


def test_10_an_input_whose_append_failed_is_not_lost_behind_a_later_one() -> None:
    """The first start's append is lost, the second's lands: after the re-claim both runs exist."""

    async def act(_: ToolContext[None]) -> str:
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.RERUN, act)
            log = FaultyLog(cluster.broker)
            p0 = await cluster.start_executor(app, "p0", log)
            await cluster.until(lambda: p0.executor.ready)
            log.fates.extend(["lost", "lost", "ok", "ok"])
            await cluster.start("r1", "a")
            await cluster.start("r2", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert (await cluster.ended("r2")).ended is Status.COMPLETED
            for run_id in ("r1", "r2"):
                assert cluster.types(run_id).count("RunStarted") == 1

    run_virtual(main())


def test_11_a_void_record_that_was_pipelined_behind_a_lost_one_is_not_revived() -> None:
    """The completion is lost, the request behind it lands: void, though its seq is the next one of a later snapshot.

    r2, which no snapshot covers, makes the take-over read the log from before that record on.
    """

    async def main() -> None:
        async with Cluster.running(partitions=1, snapshot_every=3) as cluster:
            slow = Agent("slow", model=HangingModel(), instructions="")
            app = App([*one_tool_app(Recovery.MANUAL, done).agents, slow])
            log = FaultyLog(cluster.broker)
            p0 = await cluster.start_executor(app, "p0", log)
            await cluster.start("r2", "slow")
            await cluster.until(lambda: len(cluster.types("r2")) == 2)
            log.lose = lambda record: isinstance(record, ModelResponded)
            await cluster.start("r1", "a")
            await cluster.until(lambda: any(is_tool_request(record) for record in everything(cluster)))
            assert requests(cluster) == []
            log.lose = is_tool_request
            await cluster.until(lambda: "ModelResponded" in cluster.types("r1"))
            p0.kill()
            await cluster.until(lambda: 2 in cluster.database.snapshots["r1"])
            assert cluster.database.partitions[0].replay_from < 5
            await cluster.start_executor(app, "p1")
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert requests(cluster) == [(1, Why.FIRST)]
            assert "Interrupted" not in cluster.types("r1")

    run_virtual(main())


def test_12_a_decision_of_an_old_epoch_is_not_appended_in_a_new_one() -> None:
    """A cancel's append is lost: the new epoch judges the input again, and exactly one record settles it."""
    gate = asyncio.Event()

    async def act(_: ToolContext[None]) -> str:
        await gate.wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.KEYED, act)
            log = FaultyLog(cluster.broker)
            await cluster.start_executor(app, "p0", log)
            await cluster.start("r1", "a")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r1"))
            log.fates.append("lost")
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
            gate.set()
            state = await cluster.ended("r1")
            assert state.ended is Status.CANCELLED
            cancels = [event for event in cluster.events("r1") if isinstance(event, CancelRequested)]
            assert len(cancels) == 1

    run_virtual(main())


def test_13_no_such_run_is_answered_by_memory_and_then_by_postgres() -> None:
    """A second start of a run that has ended and left memory is a duplicate, not a new run."""

    async def act(_: ToolContext[None]) -> str:
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            app = one_tool_app(Recovery.RERUN, act)
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            await asyncio.sleep(5)
            before = cluster.types("r1")
            offset = await cluster.start("r1", "a")
            await cluster.until(lambda: any(s.cause.offset == offset for s in cluster.records("r1")[1]))
            assert cluster.types("r1") == before
            assert cluster.records("r1")[1][-1].outcome == "duplicate"

    run_virtual(main())


def test_14_an_exception_of_a_tool_that_cannot_be_repeated_is_an_unknown_outcome() -> None:
    """MANUAL raises: indeterminate at once, never called again, settled by a person."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await asyncio.sleep(200)
            assert len(calls) == 1
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "result", "ops", result={"id": "T-7"}))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert (returned.source, returned.resolved_by) == ("operator", "ops")

    run_virtual(main())


def test_15_a_call_that_runs_through_a_broker_restart_keeps_its_outcome() -> None:
    """MANUAL: the epoch ends in the call, or while its outcome is appended: not indeterminate, not repeated."""
    calls: list[int] = []

    async def main(fates: list[str]) -> None:
        calls.clear()
        gate = asyncio.Event()

        async def act(ctx: ToolContext[None]) -> str:
            calls.append(ctx.attempt)
            await gate.wait()
            return "sent"

        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act), "p0", log)
            await cluster.start("r1", "a")
            await cluster.until(lambda: len(calls) == 1)
            log.fates.extend(fates)
            gate.set()
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert calls == [1]
            assert not any(isinstance(event, Interrupted) for event in cluster.events("r1"))

    run_virtual(main(["lost"]))
    run_virtual(main(["unknown"]))
    run_virtual(main(["lost", "lost", "unknown", "lost"]))


def test_17_a_late_verdict_about_an_earlier_attempt_changes_nothing() -> None:
    """Attempt 2 is open when a verdict about attempt 1 arrives."""
    gate = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        if ctx.attempt == 1:
            raise RuntimeError("first try fails")
        await gate.wait()
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, act))
            await cluster.start("r1", "a")
            await cluster.until(lambda: len(requests(cluster)) == 2)
            assert await rule_verdict(cluster, "found", attempt=1, result=b'"other"') == "stale"
            gate.set()
            await cluster.ended("r1")
            [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
            assert returned.attempt == 2

    run_virtual(main())


def test_freshness_an_old_contiguous_acknowledgement_is_not_acted_upon() -> None:
    """A process that wakes up with an old acknowledgement in hand appends its request again instead of acting."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act), "p0", log)
            log.trap = is_tool_request
            await cluster.start("r1", "a")
            await cluster.until(lambda: log.hold_acks)
            await asyncio.sleep(6)
            log.release()
            await cluster.ended("r1")
            assert calls == [2]
            assert requests(cluster) == [(1, Why.FIRST), (2, Why.STALE)]

    run_virtual(main())
