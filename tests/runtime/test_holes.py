"""Holes that were found by attacking the runtime; each test failed before its mend."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.adapters.memory.store import MemoryStore
from runfold.codec import inputs as codec_inputs
from runfold.codec.input_types import VerdictInput
from runfold.core.decisions import Fail
from runfold.core.events import ToolCallRequested
from runfold.core.state import Status
from runfold.ports.store import Commit, PartitionRow, StoredRun
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import done, one_tool_app


def test_inputs_for_runs_that_do_not_exist_leave_nothing_in_memory() -> None:
    """Typos must neither fill memory nor stop the intake."""

    async def main() -> None:
        async with Cluster.running(max_busy_runs=10, partitions=1) as cluster:
            process = await cluster.start_executor(one_tool_app(Recovery.KEYED, done))
            for number in range(20):
                await cluster.approve(f"typo-{number}", 2)
            await asyncio.sleep(30)
            assert process.executor.runs_in_memory == 0
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


class SlowToClose(MemoryInputs):
    """Inputs whose readers take three seconds to close."""

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Open a slow reader."""
        reader = await super().open(partition, next_offsets)
        close = reader.close

        async def slowly() -> None:
            await asyncio.sleep(3)
            await close()

        reader.close = slowly  # type: ignore[method-assign]
        return reader


def test_an_owner_that_ends_late_does_not_deafen_the_next_one() -> None:
    """Lost and assigned again at once: the old owner's end must not touch the new one's effects."""

    async def act(_: ToolContext[None]) -> str:
        await asyncio.sleep(8)
        return "done"

    async def main() -> None:
        async with Cluster.running(inputs=SlowToClose, partitions=1) as cluster:
            process = await cluster.start_executor(one_tool_app(Recovery.KEYED, act))
            await cluster.until(lambda: process.executor.ready)
            process.membership.expire()
            await asyncio.sleep(0.5)
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


@pytest.mark.parametrize("culprit", ["model", "planner"])
def test_a_cancellation_of_the_authors_own_making_is_an_error(culprit: str) -> None:
    """It must not leave the run running with nobody driving it."""

    class Cancelling(ScriptedModel):
        async def request(self, *_: Any, **__: Any) -> Any:
            raise asyncio.CancelledError

    def planner(_: object) -> Any:
        raise asyncio.CancelledError

    async def main() -> None:
        model = Cancelling(["done"]) if culprit == "model" else ScriptedModel(["done"])
        own: dict[str, Any] = {"planner": planner} if culprit == "planner" else {}
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(App([Agent("a", model=model, instructions="", **own)]))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")

    run_virtual(main())


class RacingStore(MemoryStore):
    """Commits wait for ``may_commit``; once ``armed``, the next reading lets the compactor catch up behind it."""

    may_commit: ClassVar[asyncio.Event]
    armed: ClassVar[bool] = False

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit when it is allowed."""
        await RacingStore.may_commit.wait()
        return await super().commit(commit)

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """Read, and then wait."""
        read = await super().load_partition(partition, also)
        await self._race()
        return read

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """Wait, and then read."""
        await self._race()
        return await super().load_runs(run_ids)

    @staticmethod
    async def _race() -> None:
        if RacingStore.armed:
            RacingStore.may_commit.set()
            await asyncio.sleep(5)


def test_a_compactor_that_catches_up_during_a_take_over_makes_no_input_forgotten() -> None:
    """Row, runs and positions are of one moment: else one "absent" executes a MANUAL tool twice."""

    async def main() -> None:
        RacingStore.may_commit, RacingStore.armed = asyncio.Event(), False
        RacingStore.may_commit.set()
        calls: list[int] = []

        async def act(ctx: ToolContext[None]) -> str:
            calls.append(ctx.attempt)
            raise RuntimeError("connection reset")

        app = one_tool_app(Recovery.MANUAL, act, timeout=1.0)
        async with Cluster.running(store=RacingStore, partitions=1) as cluster:
            p0 = await cluster.start_executor(app, "p0")
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await asyncio.sleep(5)
            RacingStore.may_commit.clear()  # the compactor falls behind
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            await asyncio.sleep(1)
            assert calls == [1, 2]
            p0.kill()
            RacingStore.armed = True
            await cluster.start_executor(app, "p1")
            await asyncio.sleep(60)
            valid = [event.attempt for event in cluster.events("r1") if isinstance(event, ToolCallRequested)]
            assert calls == valid == [1, 2]

    run_virtual(main())


def test_a_run_that_no_snapshot_and_no_log_can_bring_back_is_parked_and_said() -> None:
    """Its driver must not end in silence."""

    async def main() -> None:
        app = one_tool_app(Recovery.KEYED, done, needs_approval=True)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.until(lambda: process.executor.runs_in_memory == 0)
            for seq, row in cluster.database.snapshots["r1"].items():
                cluster.database.snapshots["r1"][seq] = replace(row, state=b"x" + row.state[1:])
            cluster.broker.delete_before(TOPICS.log, 0, cluster.broker.bounds(TOPICS.log, 0)[1])
            await cluster.approve("r1", 2)
            await asyncio.sleep(60)
            assert list(process.executor.parked) == ["r1"]

    run_virtual(main())


def test_a_run_that_ends_before_its_effect_does_leaves_memory() -> None:
    """Found by the reconciler while the call still ran: the late outcome is dropped."""

    async def main() -> None:
        @tool(recovery=Recovery.LOOKUP, timeout=5.0)
        async def act(_: ToolContext[None]) -> str:
            """Act."""
            await asyncio.sleep(1000)
            return "x"

        @act.lookup
        async def find(_: ToolContext[None]) -> str:
            """Find."""
            return "x"

        app = App([Agent("a", model=ScriptedModel([("act", {}), "done"]), instructions="", tools=[act])])
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r1"))
            verdict = VerdictInput(run_id="r1", step=2, attempt=1, outcome="found", verdict_by="x", result=b'"x"')
            await cluster.send(TOPICS.control, "r1", codec_inputs.encode_verdict(verdict))
            await cluster.ended("r1")
            await asyncio.sleep(100)
            assert process.executor.runs_in_memory == 0

    run_virtual(main())


def test_runs_that_wait_for_verdicts_do_not_close_the_intake() -> None:
    """More dangling LOOKUP calls than runs may be busy: the verdicts that free them are read all the same."""

    async def main() -> None:
        hang = [True]

        @tool(recovery=Recovery.LOOKUP, timeout=5.0)
        async def act(_: ToolContext[None]) -> str:
            """Act."""
            if hang[0]:
                await asyncio.sleep(1000)
            return "x"

        @act.lookup
        async def find(_: ToolContext[None]) -> str:
            """Find."""
            return "found"

        app = App([Agent("a", model=ScriptedModel([("act", {}), "done"]), instructions="", tools=[act])])
        async with Cluster.running(max_busy_runs=3, partitions=1) as cluster:
            process = await cluster.start_executor(app)
            for number in range(4):
                await cluster.start(f"r{number}", "a")
            await cluster.until(lambda: all("ToolCallRequested" in cluster.types(f"r{n}") for n in range(4)))
            process.kill()
            hang[0] = False
            await cluster.start_executor(app)
            cluster.start_reconciler(app)
            for number in range(4):
                await cluster.ended(f"r{number}")

    run_virtual(main())


def test_an_input_and_the_message_made_of_it_fit_one_record_together() -> None:
    """A high inline limit: two payloads below it must not make a record that nobody can append."""

    async def main() -> None:
        app = App([Agent("a", model=ScriptedModel(["done"]), instructions="")])
        async with Cluster.running(partitions=1, inline_limit=900_000) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a", "x" * 600_000)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_absent_about_one_attempt_is_not_believed_about_the_next() -> None:
    """A person says twice that attempt 1 had no effect; an append is lost in between, and attempt 2 is in doubt."""
    effects: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        if ctx.attempt > 1:
            effects.append(ctx.attempt)
        raise RuntimeError("connection reset")

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act, timeout=1.0), "p0", log)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            log.fates.extend(["ok", "ok", "lost"])  # resumed, the request of attempt 2, the second absent's record
            value = codec_inputs.encode_resolve("r1", 2, "absent", "ops", attempt=1)
            await cluster.request("r1", value)
            await cluster.request("r1", value)
            await asyncio.sleep(120)
            assert effects == [2]
            assert [settled.reason for settled in cluster.records("r1")[1]] == ["not_open"]

    run_virtual(main())


def test_a_run_with_a_long_error_does_not_stop_its_partitions_compaction() -> None:
    """JSON makes six characters of a control character: the notification would not fit."""

    def planner(_: object) -> Any:
        return Fail("\x01" * 300_000)

    async def main() -> None:
        bad = Agent("bad", model=ScriptedModel(["x"]), instructions="", planner=planner)
        good = Agent("good", model=ScriptedModel(["x"]), instructions="")
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(App([bad, good]))
            await cluster.start("r1", "bad")
            await cluster.start("r2", "good")
            await cluster.until(
                lambda: (
                    {"r1", "r2"}
                    <= {r for r, row in cluster.database.runs.items() if row.status.value in ("failed", "completed")}
                )
            )

    run_virtual(main())


def test_a_run_that_is_held_by_an_error_starts_nothing() -> None:
    """One call's back-off runs out while another's poison holds the run; a resume lets it be tried again."""
    calls: list[bool] = []

    async def main() -> None:
        watched: list[Cluster] = []

        @tool(recovery=Recovery.KEYED, retries=5)
        async def flaky(ctx: ToolContext[None]) -> str:
            """Fail."""
            state = watched[0].state(ctx.run_id)
            calls.append(state is not None and state.operational_wait() is not None)
            raise RuntimeError("x")

        @tool(recovery=Recovery.KEYED, needs_approval=True)
        async def gated() -> str:
            """Publish."""
            return "x"

        model = ScriptedModel([[("flaky", {}), ("gated", {})], "done"])
        app = App([Agent("a", model=model, instructions="", tools=[flaky, gated])])
        async with Cluster.running(partitions=1) as cluster:
            watched.append(cluster)
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: calls)
            # The tool is gone when its approval comes: the run is held by an error.
            agent: Any = process.agents.get("a")
            specs = agent._specs
            agent._specs = {name: spec for name, spec in specs.items() if name != "gated"}
            await cluster.approve("r1", 3)
            await cluster.waiting("r1", "error")
            before = len(calls)
            await asyncio.sleep(60)
            assert len(calls) == before
            assert not any(calls)
            agent._specs = specs
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            await cluster.waiting("r1", "indeterminate")
            assert len(calls) > before

    run_virtual(main())


def test_a_lookup_call_of_a_run_that_is_held_back_fills_no_log() -> None:
    """Nobody could use the verdict: the reconciler asks once the run is lifted."""

    def app(instructions: str) -> App:
        @tool(recovery=Recovery.LOOKUP, timeout=5)
        async def act(ctx: ToolContext[None]) -> str:
            """Act."""
            if ctx.attempt == 1:
                await asyncio.sleep(1000)
            return "x"

        @act.lookup
        async def find(_: ToolContext[None]) -> str | Absent:
            """Find."""
            return ABSENT

        return App([Agent("a", model=ScriptedModel([("act", {}), "done"]), instructions=instructions, tools=[act])])

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app("v1"))
            await cluster.start("r1", "a")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r1"))
            process.kill()
            await cluster.start_executor(app("v2"))
            cluster.start_reconciler(app("v2"))
            await cluster.waiting("r1", "version_mismatch")
            await asyncio.sleep(100)
            _, before = cluster.broker.bounds(TOPICS.log, 0)
            await asyncio.sleep(2000)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == before
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops", accept_version=True))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main(), 36000)
