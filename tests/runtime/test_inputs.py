"""Each input has exactly one effect, whatever is sent twice, misplaced, forged, refused or deleted."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Interrupted, Resumed
from runfold.core.state import Status
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import (
    claims,
    done,
    model_app,
    one_tool_app,
    planless,
    requests,
    send_verdict,
    settled,
)


async def fail(_: ToolContext[None]) -> str:
    """Fail, nobody knows how."""
    raise RuntimeError("connection reset")


# --- the same input twice ---------------------------------------------------------------------------------------


def test_a_start_with_an_id_that_was_seen_has_no_effect() -> None:
    """Else a second start with another input would be told that the run exists."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done"))
            await cluster.start("r1", "a", "one", id="x")
            again = await cluster.start("r1", "a", "two", id="x")
            assert (await settled(cluster, "r1", again)).outcome == "duplicate"

    run_virtual(main())


def test_an_approval_with_an_id_that_was_seen_has_no_effect() -> None:
    """Neither on the gate that it names, nor as an approval that is not open."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await cluster.start("r1", "a", id="x")
            await cluster.waiting("r1", "awaiting_approval")
            approval = codec_inputs.encode_approval("r1", "r1:2", "approved", "dana", id="x")
            offset = await cluster.send(TOPICS.approvals, "r1", approval)
            assert (await settled(cluster, "r1", offset, TOPICS.approvals)).outcome == "duplicate"
            assert "Resumed" not in cluster.types("r1")

    run_virtual(main())


def test_a_resume_with_an_id_that_was_seen_has_no_effect() -> None:
    """The run fails again after the first one: the second copy does not lift that."""

    async def main() -> None:
        app, model = planless()
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")
            resume = codec_inputs.encode_resume("r1", "ops", id="x")
            await cluster.request("r1", resume)
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            again = await cluster.request("r1", resume)
            assert (await settled(cluster, "r1", again)).outcome == "duplicate"
            assert cluster.types("r1").count("Resumed") == 1
            assert model.calls[0] == 2

    run_virtual(main())


def test_a_resolve_with_an_id_that_was_seen_has_no_effect() -> None:
    """A MANUAL call in doubt is "absent" and fails again: the second copy must not execute it a third time."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, fail))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            absent = codec_inputs.encode_resolve("r1", 2, "absent", "ops", id="x")
            await cluster.request("r1", absent)
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            again = await cluster.request("r1", absent)
            assert (await settled(cluster, "r1", again)).outcome == "duplicate"
            assert len(requests(cluster)) == 2

    run_virtual(main())


@pytest.mark.parametrize("kind", ["cancel", "verdict"])
def test_a_cancel_or_a_verdict_with_an_id_that_was_seen_has_no_effect(kind: str) -> None:
    """The id is the start's, so only the id can be why."""

    async def act(_: ToolContext[None]) -> str:
        await asyncio.sleep(20)
        return "done"

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, act))
            await cluster.start("r1", "a", id="x")
            await cluster.until(lambda: requests(cluster))
            if kind == "cancel":
                topic, cancel = TOPICS.requests, codec_inputs.encode_cancel("r1", "enough", "ops", id="x")
                offset = await cluster.request("r1", cancel)
            else:
                topic, offset = TOPICS.control, await send_verdict(cluster, "found", result=b"1", id="x")
            assert (await settled(cluster, "r1", offset, topic)).outcome == "duplicate"
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_an_approval_is_taken_once_and_another_decision_is_refused() -> None:
    """The same decision by the same person again: no effect; another decision, or another person: not open."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await cluster.approve("r1", 2)
            await cluster.ended("r1")
            same, other, else_ = [
                await cluster.approve("r1", 2, decision, by)
                for decision, by in [("approved", "dana"), ("rejected", "dana"), ("approved", "eve")]
            ]
            assert (await settled(cluster, "r1", same, TOPICS.approvals)).outcome == "duplicate"
            for offset in (other, else_):
                refused = await settled(cluster, "r1", offset, TOPICS.approvals)
                assert (refused.outcome, refused.reason) == ("dead", "not_open")
            assert len([event for event in cluster.events("r1") if isinstance(event, Resumed)]) == 1

    run_virtual(main())


def test_an_approval_before_its_gate_is_refused_and_opens_nothing_later() -> None:
    """It is not kept for the gate: what has not been shown to anybody cannot have been approved."""

    @tool(recovery=Recovery.RERUN)
    async def prepare() -> str:
        """Take a while before the gate."""
        await asyncio.sleep(20)
        return "done"

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def publish() -> str:
        """Publish."""
        return "done"

    model = ScriptedModel([("prepare", {}), ("publish", {}), "done"])
    app = App([Agent("a", model=model, instructions="", tools=[prepare, publish])])

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            early = await settled(cluster, "r1", await cluster.approve("r1", 4), TOPICS.approvals)
            assert (early.outcome, early.reason) == ("dead", "not_open")
            await cluster.waiting("r1", "awaiting_approval")
            await asyncio.sleep(60)
            assert [event.wait_id for event in cluster.events("r1") if isinstance(event, Interrupted)] == ["r1:4"]
            assert not [event for event in cluster.events("r1") if isinstance(event, Resumed)]
            await cluster.approve("r1", 4)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_an_approval_of_other_arguments_is_refused_and_the_gate_stays_open() -> None:
    """The digest, where it is given, has to be the gate's."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            [gate] = [event for event in cluster.events("r1") if isinstance(event, Interrupted)]

            async def approve(digest: str | None) -> int:
                value = codec_inputs.encode_approval("r1", "r1:2", "approved", "dana", arguments_digest=digest)
                return await cluster.send(TOPICS.approvals, "r1", value)

            wrong = await approve("0" * 64)
            assert (await settled(cluster, "r1", wrong, TOPICS.approvals)).reason == "digest_mismatch"
            assert "Resumed" not in cluster.types("r1")
            await approve(gate.arguments_digest)
            await cluster.ended("r1")

    run_virtual(main())


def test_a_run_that_has_ended_cannot_be_cancelled() -> None:
    """Said so, not ignored."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done"))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            late = await cluster.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            assert (await settled(cluster, "r1", late)).reason == "run_ended"

    run_virtual(main())


def test_a_settled_input_above_one_that_is_held_is_not_taken_again_after_a_claim() -> None:
    """The resolve waits for its time; the resume behind it has had its effect, and has it once."""

    async def main() -> None:
        app, model = planless()
        agents = [*one_tool_app(Recovery.MANUAL, fail, timeout=500.0).agents]
        app = App([*agents, Agent("b", model=model, instructions="", planner=app.agents[0].planner)])
        async with Cluster.running(partitions=1) as cluster:
            first = await cluster.start_executor(app, "p0")
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "indeterminate")
            await cluster.start("r2", "b")
            await cluster.waiting("r2", "error")
            await first.stop()
            log = FaultyLog(cluster.broker)
            second = await cluster.start_executor(app, "p1", log)
            await cluster.until(lambda: second.executor.ready)
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await cluster.request("r2", codec_inputs.encode_resume("r2", "ops"))
            await cluster.until(lambda: cluster.types("r2").count("Interrupted") == 2)
            log.fates.append("lost")
            await cluster.approve("r3", 2)
            await cluster.until(lambda: claims(cluster) == 3)
            await asyncio.sleep(60)
            assert model.calls[0] == 2
            assert cluster.types("r2").count("Resumed") == 1

    run_virtual(main())


def test_inputs_that_retention_deleted_unread_are_reported_and_passed() -> None:
    """Two starts are gone before an executor runs: that is an error in the log; the third is served."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            for run_id in ("r1", "r2", "r3"):
                await cluster.start(run_id, "a")
            cluster.broker.delete_before(TOPICS.requests, 0, 2)
            with capture_logs() as logs:
                await cluster.start_executor(model_app("done"))
                await cluster.ended("r3")
            lost = [entry for entry in logs if entry["event"] == "inputs_deleted_unread"]
            assert [(e["topic"], e["first"], e["count"], e["log_level"]) for e in lost] == [
                (TOPICS.requests, 0, 2, "error")
            ]
            assert cluster.events("r1") == []

    run_virtual(main())


def test_the_position_in_postgres_passes_inputs_that_retention_deleted_unread() -> None:
    """Else the row grows for ever, and every take-over reports the same loss again."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            for run_id in ("r1", "r2", "r3"):
                await cluster.start(run_id, "a")
            cluster.broker.delete_before(TOPICS.requests, 0, 2)
            first = await cluster.start_executor(model_app("done"))
            await cluster.ended("r3")
            await asyncio.sleep(60)
            await first.stop()
            with capture_logs() as logs:
                await cluster.start_executor(model_app("done"))
                await cluster.start("r4", "a")
                await cluster.ended("r4")
                await asyncio.sleep(60)
            position = cluster.database.partitions[0].positions.of(TOPICS.requests)
            assert (position.next, position.above) == (4, set())
            assert "inputs_deleted_unread" not in [entry["event"] for entry in logs]

    run_virtual(main())
