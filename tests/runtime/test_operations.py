"""Version gate, unknown agents, cancel, resume, poison, patches, eviction and hand-over, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runfold import Agent, App, Recovery, Result, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Interrupted, RunCancelled, ToolCallRequested, VersionChanged
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import last_settled, settled
from tests.runtime.book import KeyedBook


@tool(recovery=Recovery.KEYED, needs_approval=True)
async def publish(ctx: ToolContext[None], body: str) -> str:
    """Publish."""
    return f"{body} published with {ctx.idempotency_key}"


def gated_app(instructions: str = "v1", **agent: Any) -> App:
    """An agent that publishes once, behind a gate."""
    model = ScriptedModel([("publish", {"body": "b"}), "done"])
    return App([Agent("a", model=model, instructions=instructions, tools=[publish], **agent)])


def test_another_prompt_refuses_the_run_within_seconds_of_the_approval_and_an_operator_may_accept() -> None:
    """Interrupted, deployed with another prompt, approved: the gate's decision is in the log; resume accepts it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            old = await cluster.start_executor(gated_app("v1"))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await old.stop()
            await cluster.start_executor(gated_app("v2"))
            await cluster.approve("r1", 2)
            state = await cluster.waiting("r1", "version_mismatch")
            [interrupted] = [e for e in cluster.events("r1") if isinstance(e, Interrupted) and "version" in e.reason]
            assert b'"prompt"' in interrupted.detail.data  # type: ignore[union-attr]
            refused = await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            assert (await settled(cluster, "r1", refused)).reason == "version_mismatch"
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops", accept_version=True))
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert [type(e) for e in cluster.events("r1")].count(VersionChanged) == 1

    run_virtual(main())


def test_a_refused_run_is_lifted_by_an_executor_with_the_right_version() -> None:
    """Nobody has to resume it: the next owner looks again."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            old = await cluster.start_executor(gated_app("v1"))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await old.stop()
            wrong = await cluster.start_executor(gated_app("v2"))
            await cluster.approve("r1", 2)
            await cluster.waiting("r1", "version_mismatch")
            await asyncio.sleep(3)
            await wrong.stop()
            await cluster.start_executor(gated_app("v1"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_another_revision_is_accepted_and_recorded() -> None:
    """The default policy accepts a new revision: one version_changed."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            old = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await old.stop()
            await cluster.start_executor(gated_app(), revision="rev-2")
            await cluster.approve("r1", 2)
            await cluster.ended("r1")
            [changed] = [e for e in cluster.events("r1") if isinstance(e, VersionChanged)]
            assert (changed.old.revision, changed.new.revision) == ("rev-1", "rev-2")
            assert changed.policy == (("revision", "accept"),)

    run_virtual(main())


def test_an_unknown_agent_waits_until_an_executor_knows_it() -> None:
    """The run exists, visibly, and begins when the code that knows its agent owns it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            other = App([Agent("other", model=ScriptedModel(["x"]), instructions="")])
            first = await cluster.start_executor(other)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "unknown_agent")
            await first.stop()
            await cluster.start_executor(gated_app())
            await cluster.waiting("r1", "awaiting_approval")
            assert "VersionChanged" in cluster.types("r1")

    run_virtual(main())


def test_a_cancel_ends_a_waiting_run_at_once_and_an_active_one_after_its_calls() -> None:
    """Nothing new is started; what ran is recorded; a second cancel has no effect."""

    async def main() -> None:
        gate = asyncio.Event()

        @tool(recovery=Recovery.KEYED)
        async def slow() -> str:
            """Wait."""
            await gate.wait()
            return "done"

        model = ScriptedModel([("slow", {}), "done"])
        app = App([Agent("s", model=model, instructions="", tools=[slow]), *gated_app().agents])
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.start("r2", "s")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r2"))
            for run_id in ("r1", "r2"):
                await cluster.request(run_id, codec_inputs.encode_cancel(run_id, "enough", "ops"))
            assert (await cluster.ended("r1")).ended is Status.CANCELLED
            await cluster.until(lambda: "CancelRequested" in cluster.types("r2"))
            again = await cluster.request("r2", codec_inputs.encode_cancel("r2", "enough", "ops"))
            assert (await settled(cluster, "r2", again)).outcome == "duplicate"
            gate.set()
            assert (await cluster.ended("r2")).ended is Status.CANCELLED
            assert "ToolReturned" in cluster.types("r2")
            late = await cluster.approve("r1", 2)
            assert (await settled(cluster, "r1", late)).reason == "not_open"

    run_virtual(main())


def test_a_cancelled_run_names_the_keys_whose_outcome_nobody_knows() -> None:
    """The executor dies in a KEYED call, and the run is cancelled: open_keys."""

    async def main() -> None:
        @tool(recovery=Recovery.KEYED)
        async def hang() -> str:
            """Hang."""
            await asyncio.Event().wait()
            return ""

        app = App([Agent("h", model=ScriptedModel([("hang", {}), "x"]), instructions="", tools=[hang])])
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "h")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r1"))
            await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            await cluster.until(lambda: "CancelRequested" in cluster.types("r1"))
            process.kill()
            await cluster.start_executor(app)
            await cluster.ended("r1")
            last = cluster.events("r1")[-1]
            assert isinstance(last, RunCancelled)
            assert last.open_keys == ("r1:2",)

    run_virtual(main())


@pytest.mark.parametrize("poison", ["planner", "model"])
def test_a_poison_run_waits_and_its_neighbours_keep_moving(poison: str) -> None:
    """Its planner raises, or its model always fails: interrupted(error) for it alone."""

    def explode(_: object) -> Any:
        raise ValueError("planner is broken")

    async def main() -> None:
        broken: dict[str, Any] = {"planner": explode} if poison == "planner" else {}
        script: list[Any] = [RuntimeError("no model")] if poison == "model" else ["x"]
        bad = Agent("bad", model=ScriptedModel(script), instructions="", **broken)
        good = Agent("good", model=ScriptedModel(["fine"]), instructions="")
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(App([bad, good]))
            await cluster.start("r1", "bad")
            await cluster.start("r2", "good")
            assert (await cluster.ended("r2")).ended is Status.COMPLETED
            await cluster.waiting("r1", "error")
            again = await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            assert last_settled(cluster, "r1", again) is None

    run_virtual(main())


def test_parallel_tools_complete_in_any_order_and_patch_in_call_order() -> None:
    """Five tools end in reverse: the transcript and the state are as if they had ended in order."""

    async def main() -> None:
        @tool(recovery=Recovery.RERUN)
        async def work(ctx: ToolContext[None], number: int) -> Result[int]:
            """Work."""
            await asyncio.sleep(10 - number)
            return Result(number, for_model=f"number {number}", patch={"last": number, f"n{number}": ctx.step})

        model = ScriptedModel([[("work", {"number": n}) for n in range(5)], "done"])
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(App([Agent("p", model=model, instructions="", tools=[work])]))
            await cluster.start("r1", "p")
            state = await cluster.ended("r1")
            assert [entry.tool_call_id for entry in state.transcript[2:7]] == [f"call-0-{n}" for n in range(5)]
            assert state.values["last"].data == b"4"  # type: ignore[union-attr]
            assert state.values["n2"].data == b"4"  # type: ignore[union-attr]

    run_virtual(main())


def test_large_payloads_go_to_the_object_store_before_the_event_that_refers_to_them() -> None:
    """Input, arguments and results above the limit are blobs, and the run reads them back."""
    seen: list[int] = []

    async def main() -> None:
        @tool(recovery=Recovery.RERUN)
        async def measure(text: str) -> str:
            """Measure."""
            seen.append(len(text))
            return text * 2

        model = ScriptedModel([("measure", {"text": "y" * 5000}), "z" * 5000])
        async with Cluster.running(partitions=1, inline_limit=1000) as cluster:
            await cluster.start_executor(App([Agent("m", model=model, instructions="", tools=[measure])]))
            await cluster.start("r1", "m", "x" * 5000)
            state = await cluster.ended("r1")
            assert seen == [5000]
            assert state.output is not None
            assert state.output.size == 5002
            assert len(cluster.blobs.stored) >= 5

    run_virtual(main())


def test_runs_at_rest_leave_memory_behind_a_snapshot_and_come_back() -> None:
    """After the compactor has covered it, a waiting run is a row; its approval loads it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.until(lambda: process.executor.runs_in_memory == 0)
            await cluster.approve("r1", 2)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_a_run_does_not_leave_memory_while_the_compactor_is_away() -> None:
    """No snapshot, no eviction: answering "no such run" from Postgres alone would lose it."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            process = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await asyncio.sleep(30)
            assert process.executor.runs_in_memory == 1
            await cluster.approve("r1", 2)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_a_clean_hand_over_drains_what_runs_and_repeats_nothing() -> None:
    """SIGTERM during a call: its outcome is appended by the old owner, the new one goes on."""
    book = KeyedBook()

    async def main() -> None:
        @tool(recovery=Recovery.MANUAL)
        async def slow(ctx: ToolContext[None]) -> str:
            """Take five seconds."""
            await asyncio.sleep(5)
            return str(book.apply(ctx.idempotency_key, "ok"))

        model = ScriptedModel([("slow", {}), ("slow", {}), "done"])
        app = App([Agent("s", model=model, instructions="", tools=[slow])])
        async with Cluster.running(partitions=1) as cluster:
            first = await cluster.start_executor(app)
            await cluster.start("r1", "s")
            await cluster.until(lambda: "ToolCallRequested" in cluster.types("r1"))
            await asyncio.sleep(1)
            await first.stop()
            assert book.effects == {"r1:2": 1}
            await cluster.start_executor(app)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            attempts = [e.attempt for e in cluster.events("r1") if isinstance(e, ToolCallRequested)]
            assert attempts == [1, 1]
            assert book.effects == {"r1:2": 1, "r1:4": 1}

    run_virtual(main())


def test_a_malformed_input_goes_to_dead_and_the_one_behind_it_is_served() -> None:
    """A poison input holds up nobody."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(gated_app())
            bad = await cluster.send(TOPICS.requests, "r1", b"{nonsense")
            typo = await cluster.send(
                TOPICS.requests, "r1", b'{"type":"run_started","run_id":"r1","agent":"a","input":1,"imput":2}'
            )
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            reasons = [(s.cause.offset, s.outcome, s.reason) for s in cluster.records("r1")[1]]
            assert [(offset, outcome) for offset, outcome, _ in reasons] == [(bad, "dead"), (typo, "dead")]
            await cluster.until(lambda: cluster.broker.bounds(TOPICS.dead, 0)[1] == 2)

    run_virtual(main())


@pytest.mark.parametrize("fate", ["lost", "unknown"])
@pytest.mark.parametrize("nth", range(14))
def test_an_append_that_fails_anywhere_changes_nothing_that_a_person_would_notice(nth: int, fate: str) -> None:
    """The n-th append of the process fails: every effect once, every recorded completion asked once."""
    book = KeyedBook()

    async def main() -> None:
        @tool(recovery=Recovery.MANUAL)
        async def act(ctx: ToolContext[None]) -> str:
            """Act."""
            return str(book.apply(ctx.idempotency_key, "ok"))

        model = ScriptedModel([[("act", {}), ("act", {})], ("act", {}), "done"])
        app = App([Agent("s", model=model, instructions="", tools=[act])])
        async with Cluster.running(partitions=1) as cluster:
            log = FaultyLog(cluster.broker)
            log.fates.extend(["ok"] * nth + [fate])
            await cluster.start_executor(app, log=log)
            await cluster.start("r1", "s")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert book.effects == {"r1:2": 1, "r1:3": 1, "r1:5": 1}
            assert max(model.calls.values()) == 1
            causes = [e.cause for e in cluster.events("r1") if e.cause]
            assert len(causes) == 1

    run_virtual(main())
