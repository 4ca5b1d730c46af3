"""Each input has exactly one effect, whatever is sent twice, misplaced, forged, refused or deleted."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from runfold import Agent, App, Recovery, ToolContext
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.codec.input_types import VerdictInput
from runfold.core.events import InputSettled, Interrupted, Resumed, Settlement
from runfold.core.partitioning import partition_of
from runfold.core.state import Status
from runfold.ports.publisher import Published, PublishFailed
from runfold.testing import ScriptedModel
from tests.runtime import system as system_module
from tests.runtime.apps import claims, done, last_settled, model_app, one_tool_app, requests, send_verdict, settled
from tests.runtime.faults import FaultyLog
from tests.runtime.system import TOPICS, System
from tests.runtime.virtual import run_virtual

WRONG = 1 - partition_of("r1", 2)


async def fail(_: ToolContext[None]) -> str:
    """Fail, nobody knows how."""
    raise RuntimeError("connection reset")


def broken() -> tuple[App, ScriptedModel]:
    """An agent that is interrupted by an error each time that its model is asked."""
    model = ScriptedModel([ValueError("no"), "x"])

    def planner(_: object) -> Any:
        model.calls[0] += 1
        raise ValueError("no plan")

    return App([Agent("a", model=model, instructions="", planner=planner)]), model


# --- the same input twice ---------------------------------------------------------------------------------------


def test_a_start_with_an_id_that_was_seen_has_no_effect() -> None:
    """Else a second start with another input would be told that the run exists."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(model_app("done"))
            await system.start("r1", "a", "one", id="x")
            again = await system.start("r1", "a", "two", id="x")
            assert (await settled(system, "r1", again)).outcome == "duplicate"

    run_virtual(main())


def test_an_approval_with_an_id_that_was_seen_has_no_effect() -> None:
    """Neither on the gate that it names, nor as an approval that is not open."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await system.start("r1", "a", id="x")
            await system.waiting("r1", "awaiting_approval")
            approval = codec_inputs.encode_approval("r1", "r1:2", "approved", "dana", id="x")
            offset = await system.send(TOPICS.approvals, "r1", approval)
            assert (await settled(system, "r1", offset, TOPICS.approvals)).outcome == "duplicate"
            assert "Resumed" not in system.types("r1")

    run_virtual(main())


def test_a_resume_with_an_id_that_was_seen_has_no_effect() -> None:
    """The run fails again after the first one: the second copy does not lift that."""

    async def main() -> None:
        app, model = broken()
        async with System.running(partitions=1) as system:
            await system.start_executor(app)
            await system.start("r1", "a")
            await system.waiting("r1", "error")
            resume = codec_inputs.encode_resume("r1", "ops", id="x")
            await system.request("r1", resume)
            await system.until(lambda: system.types("r1").count("Interrupted") == 2)
            again = await system.request("r1", resume)
            assert (await settled(system, "r1", again)).outcome == "duplicate"
            assert system.types("r1").count("Resumed") == 1
            assert model.calls[0] == 2

    run_virtual(main())


def test_a_resolve_with_an_id_that_was_seen_has_no_effect() -> None:
    """A MANUAL call in doubt is "absent" and fails again: the second copy must not execute it a third time."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.MANUAL, fail))
            await system.start("r1", "a")
            await system.waiting("r1", "indeterminate")
            absent = codec_inputs.encode_resolve("r1", 2, "absent", "ops", id="x")
            await system.request("r1", absent)
            await system.until(lambda: system.types("r1").count("Interrupted") == 2)
            again = await system.request("r1", absent)
            assert (await settled(system, "r1", again)).outcome == "duplicate"
            assert len(requests(system)) == 2

    run_virtual(main())


@pytest.mark.parametrize("kind", ["cancel", "verdict"])
def test_a_cancel_or_a_verdict_with_an_id_that_was_seen_has_no_effect(kind: str) -> None:
    """The id is the start's, so only the id can be why."""

    async def act(_: ToolContext[None]) -> str:
        await asyncio.sleep(20)
        return "done"

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.KEYED, act))
            await system.start("r1", "a", id="x")
            await system.until(lambda: requests(system))
            if kind == "cancel":
                topic, cancel = TOPICS.requests, codec_inputs.encode_cancel("r1", "enough", "ops", id="x")
                offset = await system.request("r1", cancel)
            else:
                topic, offset = TOPICS.control, await send_verdict(system, "found", result=b"1", id="x")
            assert (await settled(system, "r1", offset, topic)).outcome == "duplicate"
            assert (await system.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_an_approval_is_taken_once_and_another_decision_is_refused() -> None:
    """The same decision by the same person again: no effect; another decision, or another person: not open."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await system.start("r1", "a")
            await system.waiting("r1", "awaiting_approval")
            await system.approve("r1", 2)
            await system.ended("r1")
            same, other, else_ = [
                await system.approve("r1", 2, decision, by)
                for decision, by in [("approved", "dana"), ("rejected", "dana"), ("approved", "eve")]
            ]
            assert (await settled(system, "r1", same, TOPICS.approvals)).outcome == "duplicate"
            for offset in (other, else_):
                refused = await settled(system, "r1", offset, TOPICS.approvals)
                assert (refused.outcome, refused.reason) == ("dead", "not_open")
            assert len([event for event in system.events("r1") if isinstance(event, Resumed)]) == 1

    run_virtual(main())


def test_an_approval_of_other_arguments_is_refused_and_the_gate_stays_open() -> None:
    """The digest, where it is given, has to be the gate's."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.KEYED, done, needs_approval=True))
            await system.start("r1", "a")
            await system.waiting("r1", "awaiting_approval")
            [gate] = [event for event in system.events("r1") if isinstance(event, Interrupted)]

            async def approve(digest: str | None) -> int:
                value = codec_inputs.encode_approval("r1", "r1:2", "approved", "dana", arguments_digest=digest)
                return await system.send(TOPICS.approvals, "r1", value)

            wrong = await approve("0" * 64)
            assert (await settled(system, "r1", wrong, TOPICS.approvals)).reason == "digest_mismatch"
            assert "Resumed" not in system.types("r1")
            await approve(gate.arguments_digest)
            await system.ended("r1")

    run_virtual(main())


def test_a_run_that_has_ended_cannot_be_cancelled() -> None:
    """Said so, not ignored."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(model_app("done"))
            await system.start("r1", "a")
            await system.ended("r1")
            late = await system.request("r1", codec_inputs.encode_cancel("r1", "enough", "ops"))
            assert (await settled(system, "r1", late)).reason == "run_ended"

    run_virtual(main())


def test_a_settled_input_above_one_that_is_held_is_not_taken_again_after_a_claim() -> None:
    """The resolve waits for its time; the resume behind it has had its effect, and has it once."""

    async def main() -> None:
        app, model = broken()
        agents = [*one_tool_app(Recovery.MANUAL, fail, timeout=500.0).agents]
        app = App([*agents, Agent("b", model=model, instructions="", planner=app.agents[0].planner)])
        async with System.running(partitions=1) as system:
            first = await system.start_executor(app, "p0")
            await system.start("r1", "a")
            await system.waiting("r1", "indeterminate")
            await system.start("r2", "b")
            await system.waiting("r2", "error")
            await first.stop()
            log = FaultyLog(system.broker)
            second = await system.start_executor(app, "p1", log)
            await system.until(lambda: second.executor.ready)
            await system.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops"))
            await system.request("r2", codec_inputs.encode_resume("r2", "ops"))
            await system.until(lambda: system.types("r2").count("Interrupted") == 2)
            log.fates.append("lost")
            await system.approve("r3", 2)
            await system.until(lambda: claims(system) == 3)
            await asyncio.sleep(60)
            assert model.calls[0] == 2
            assert system.types("r2").count("Resumed") == 1

    run_virtual(main())


# --- in the wrong place -----------------------------------------------------------------------------------------


def test_a_misplaced_input_is_forwarded_and_has_one_effect() -> None:
    """It is settled where it was put, and its copy starts the run under the original's id."""

    async def main() -> None:
        async with System.running(partitions=2) as system:
            await system.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "go")
            offset = await system.send(TOPICS.requests, "r1", value, partition=WRONG)
            await system.ended("r1")
            cause = system.events("r1")[0].cause
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
        app, model = broken()
        async with System.running(partitions=2) as system:
            log = FaultyLog(system.broker)
            log.lose = lambda record: isinstance(record, InputSettled) and record.outcome is Settlement.FORWARDED
            await system.start_executor(app, "p0", log)
            await system.start("r1", "a")
            await system.waiting("r1", "error")
            resume = codec_inputs.encode_resume("r1", "ops")
            await system.send(TOPICS.requests, "r1", resume, partition=WRONG)
            second = await settled(system, "r1", 1, TOPICS.control)
            assert second.outcome == "duplicate"
            assert system.broker.bounds(TOPICS.control, 1 - WRONG) == (0, 2)
            assert system.types("r1").count("Resumed") == 1
            assert model.calls[0] == 2

    run_virtual(main())


def test_an_origin_outside_control_means_nothing() -> None:
    """Anybody may write headers into the other topics: they must not choose an input's id."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(model_app("done"))
            await MemoryPublisher(system.broker).publish(
                TOPICS.requests,
                b"r1",
                codec_inputs.encode_start("r1", "a", "go"),
                headers=(("rf-origin", f"{TOPICS.requests}/0/7".encode()),),
            )
            await system.ended("r1")
            cause = system.events("r1")[0].cause
            assert cause is not None
            assert cause.id is None

    run_virtual(main())


def test_an_input_in_the_wrong_partition_of_control_is_dead() -> None:
    """Only we write there: forwarding it on could go round for ever."""

    async def main() -> None:
        async with System.running(partitions=2) as system:
            await system.start_executor(model_app("done"))
            await system.start("r1", "a")
            await system.ended("r1")
            verdict = VerdictInput(run_id="r1", step=2, attempt=1, outcome="absent", verdict_by="x")
            value = codec_inputs.encode_verdict(verdict)
            offset = await system.send(TOPICS.control, "r1", value, partition=WRONG)
            other = next(f"x{n}" for n in range(9) if partition_of(f"x{n}", 2) == WRONG)
            await system.until(lambda: last_settled(system, other, offset, TOPICS.control))
            dead = last_settled(system, other, offset, TOPICS.control)
            assert dead is not None
            assert (dead.outcome, dead.reason) == ("dead", "wrong_partition")
            assert system.broker.bounds(TOPICS.control, 1 - WRONG) == (0, 0)

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


def test_forwarding_is_tried_again_in_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic cannot be written for a while: the input waits, its partition is not given up."""
    monkeypatch.setattr(system_module, "MemoryPublisher", WeakPublisher)

    async def main() -> None:
        WeakPublisher.failures = 5
        async with System.running(partitions=2) as system:
            await system.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "go")
            await system.send(TOPICS.requests, "r1", value, partition=WRONG)
            await system.ended("r1")
            assert WeakPublisher.failures == 0
            assert claims(system, 0) == claims(system, 1) == 1

    run_virtual(main())


def test_an_input_that_is_too_large_to_be_forwarded_is_dead() -> None:
    """It holds up neither its partition nor the inputs behind it."""

    async def main() -> None:
        async with System.running(partitions=2) as system:
            await system.start_executor(model_app("done"))
            value = codec_inputs.encode_start("r1", "a", "x" * 1_000_000)
            offset = system.broker.append(TOPICS.requests, WRONG, b"r1", value, (("trace", b"y" * 260_000),))
            behind = await system.send(TOPICS.requests, "r1", codec_inputs.encode_start("r1", "a", "z"), WRONG)
            await system.ended("r1")
            other = next(f"x{n}" for n in range(9) if partition_of(f"x{n}", 2) == WRONG)
            dead = last_settled(system, other, offset, TOPICS.requests)
            assert dead is not None
            assert (dead.outcome, dead.reason) == ("dead", "too_large")
            assert (await settled(system, other, behind, TOPICS.requests)).outcome == "forwarded"

    run_virtual(main())


def test_inputs_that_retention_deleted_unread_are_reported_and_passed() -> None:
    """Two starts are gone before an executor runs: that is an error in the log; the third is served."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            for run_id in ("r1", "r2", "r3"):
                await system.start(run_id, "a")
            system.broker.delete_before(TOPICS.requests, 0, 2)
            with capture_logs() as logs:
                await system.start_executor(model_app("done"))
                await system.ended("r3")
            lost = [entry for entry in logs if entry["event"] == "inputs_deleted_unread"]
            assert [(e["topic"], e["first"], e["count"], e["log_level"]) for e in lost] == [
                (TOPICS.requests, 0, 2, "error")
            ]
            assert system.events("r1") == []

    run_virtual(main())


@pytest.mark.xfail(
    strict=True,
    reason="only the executor's own positions pass deleted inputs: the row's stay behind them for ever, its set of "
    "settled inputs above them grows with every input, and every new owner reports the same loss again",
)
def test_the_position_in_postgres_passes_inputs_that_retention_deleted_unread() -> None:
    """Else the row grows for ever, and every take-over reports the same loss again."""

    async def main() -> None:
        async with System.running(partitions=1) as system:
            for run_id in ("r1", "r2", "r3"):
                await system.start(run_id, "a")
            system.broker.delete_before(TOPICS.requests, 0, 2)
            first = await system.start_executor(model_app("done"))
            await system.ended("r3")
            await asyncio.sleep(60)
            await first.stop()
            with capture_logs() as logs:
                await system.start_executor(model_app("done"))
                await system.start("r4", "a")
                await system.ended("r4")
                await asyncio.sleep(60)
            position = system.database.partitions[0].positions.of(TOPICS.requests)
            assert (position.next, position.above) == (4, set())
            assert "inputs_deleted_unread" not in [entry["event"] for entry in logs]

    run_virtual(main())
