"""Faults in what an input is taken for, in how often something is tried, and in what the outside is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from runfold import Recovery
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.codec.input_types import VerdictInput
from runfold.core import decisions
from runfold.core.events import Cause, InputSettled, Interrupted, RunCompleted, Settlement, ToolReturned, WaitReason
from runfold.core.fence import HEADER
from runfold.core.payload import Inline
from runfold.core.state import Wait
from runfold.runtime import restore
from runfold.runtime.compactor.outbox import Outbox, Sent
from runfold.runtime.executor import outcomes, recovery
from runfold.runtime.executor import rulings as executor_rulings
from runfold.runtime.executor.tenure import Tenure
from runfold.testing.simulation import outside
from runfold.testing.simulation.cluster import TOPICS
from tests.mutations.planting import BOUNDED, INPUTS, TABLES, Mutation, Planted, replaced
from tests.mutations.stage import Context, LateInputs, Stage, is_a

# --- dead inputs ------------------------------------------------------------------------------------------------


def _settled_twice_counts() -> Planted:
    def mutate(real: Any) -> Any:
        def is_valid(self: Any, head: Any, key: Any, _: Any) -> bool:
            return bool(real._is_valid(self, head, key, None))

        return type("LenientFence", (real,), {"__slots__": (), "_is_valid": is_valid})

    return replaced(restore, "Fence", mutate)


async def _a_record_settles_a_settled_input(stage: Stage) -> None:
    """A second record about the input that started the run, which says that it is dead."""
    await stage.ready(stage.one_tool(Recovery.KEYED, needs_approval=True))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    epoch = stage.cluster.events("r1")[0].epoch
    cause = Cause(TOPICS.requests, 0, 0)
    second = InputSettled(epoch=epoch, at=0, cause=cause, outcome=Settlement.DEAD, run_id="r1", reason="x", detail="y")
    head, value = log_codec.encode(second)
    stage.cluster.broker.append(TOPICS.log, 0, None, value, ((HEADER, head),))
    await stage.cluster.approve("r1", 2)


def _the_owner_buries() -> Planted:
    def mutate(real: Any) -> Any:
        async def settle(self: Tenure, *records: InputSettled) -> None:
            topic = self.world.settings.topics.dead
            for record in records:
                if record.outcome is Settlement.DEAD:
                    place = record.cause
                    said = {"topic": place.topic, "partition": str(place.partition), "offset": str(place.offset)}
                    headers = tuple((name, text.encode()) for name, text in said.items())
                    publish = self.world.publisher.publish
                    await publish(topic, b"", b"", headers=headers, partition=place.partition)
            await real(self, *records)

        return settle

    return replaced(Tenure, "settle", mutate)


async def _an_approval_comes_before_its_gate(stage: Stage) -> None:
    """P0 refuses it, the record is lost, and P0 dies; the next owner opens the gate before it reads the approval."""
    app = stage.one_tool(Recovery.KEYED, needs_approval=True)
    stage.thinks["r1", 0] = asyncio.Event()
    p0, log = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.book.questions)
    log.lose = is_a(InputSettled)
    await stage.cluster.approve("r1", 2)
    await stage.until(lambda: log.lose is None)
    p0.kill()
    stage.thinks["r1", 0].set()
    await stage.ready(app, "p1")


# --- people -----------------------------------------------------------------------------------------------------


def _ids_are_not_remembered() -> Planted:
    def mutate(real: Any) -> Any:
        async def rule(run: Any, batch: Any, arrived: Any) -> Any:
            if batch.state is not None:
                batch.state.seen_ids.clear()
            return await real(run, batch, arrived)

        return rule

    return replaced(executor_rulings, "rule", mutate)


async def _an_input_is_sent_twice(stage: Stage) -> None:
    """A person's "absent" comes twice under one id; in between the call is in doubt again."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt > 1:
            await stage.perform(ctx, Recovery.MANUAL)
        raise RuntimeError("connection reset")

    await stage.ready(stage.one_tool(Recovery.MANUAL, act))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("absent", id="x")
    await stage.until(lambda: stage.has(Interrupted, 2))
    await stage.resolve("absent", id="x")
    await asyncio.sleep(5)
    await stage.resolve("result", result={"id": "r1:2"})


def _approvals(changed: Any) -> Planted:
    def mutate(real: Any) -> Any:
        def approval(batch: Any, state: Any, given: Any, cause: Any) -> Any:
            return changed(real, batch, state, given, cause)

        return approval

    return replaced(executor_rulings, "_approval", mutate)


def _any_arguments_are_approved() -> Planted:
    def changed(real: Any, batch: Any, state: Any, given: Any, cause: Any) -> Any:
        return real(batch, state, replace(given, arguments_digest=None), cause)

    return _approvals(changed)


async def _an_approval_of_other_arguments(stage: Stage) -> None:
    """Somebody approves what an earlier message showed; then the right thing."""
    await stage.ready(stage.one_tool(Recovery.KEYED, needs_approval=True))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    other = Inline(b'{"amount":1}').digest
    value = codec_inputs.encode_approval("r1", "r1:2", "approved", "dana", arguments_digest=other)
    await stage.cluster.send(TOPICS.approvals, "r1", value)
    await asyncio.sleep(2)
    await stage.cluster.approve("r1", 2)


def _a_used_approval_is_open() -> Planted:
    def changed(real: Any, batch: Any, state: Any, given: Any, cause: Any) -> Any:
        used = given.approval_id in state.used_approvals
        if used:
            step = int(given.approval_id.rpartition(":")[2])
            wait = Wait(given.approval_id, step, 0, WaitReason.AWAITING_APPROVAL, Inline(b"{}"))
            state.waits[given.approval_id] = wait
        try:
            return real(batch, state, given, cause)
        finally:
            if used:
                state.waits.pop(given.approval_id, None)

    return _approvals(changed)


async def _an_approval_is_given_twice(stage: Stage) -> None:
    """By two people, while the call runs; the tool of the same turn is still at work."""
    go = asyncio.Event()

    async def act(ctx: Context) -> Any:
        result = await stage.perform(ctx, Recovery.MANUAL)
        await go.wait()
        return result

    await stage.ready(stage.one_tool(Recovery.MANUAL, act, needs_approval=True))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.cluster.approve("r1", 2)
    await stage.until(stage.acts)
    await stage.cluster.approve("r1", 2, by="lee")
    await asyncio.sleep(2)
    go.set()


def _verdicts_about_closed_calls_are_taken() -> Planted:
    def mutate(real: Any) -> Any:
        async def verdict(run: Any, batch: Any, state: Any, given: Any, cause: Any) -> Any:
            call = state.call_at(given.step)
            if call is None or given.outcome != "found":
                return await real(run, batch, state, given, cause)
            await executor_rulings._found(run, batch, state, call, given, cause)
            return executor_rulings.CAUSED

        return verdict

    return replaced(executor_rulings, "_verdict", mutate)


async def _a_verdict_comes_behind_the_outcome(stage: Stage) -> None:
    """Of two calls one has returned, the other is at work; then the reconciler says what it found of the first."""
    go = asyncio.Event()

    async def other(ctx: Context) -> Any:
        await go.wait()
        return await stage.perform(ctx, Recovery.KEYED)

    tools = stage.tool(Recovery.LOOKUP), stage.tool(Recovery.KEYED, other, name="other")
    await stage.ready(stage.app(*tools, script=([("act", {}), ("other", {})], "done")))
    await stage.start()
    await stage.until(lambda: stage.has(ToolReturned))
    found = VerdictInput(
        run_id="r1", step=2, attempt=1, outcome="found", verdict_by="reconciler", result=b'{"id":"r1:2"}'
    )
    await stage.cluster.send(TOPICS.control, "r1", codec_inputs.encode_verdict(found))
    await asyncio.sleep(2)
    go.set()


def _only_a_closed_turn_ends_a_doubt() -> Planted:
    def mutate(_: Any) -> Any:
        def returned(state: Any) -> Any:
            doubts = (wait for wait in state.waits.values() if wait.reason is WaitReason.INDETERMINATE)
            return next((wait for wait in doubts if state.call_at(wait.step) is None), None)

        return returned

    return replaced(decisions, "_returned_in_doubt", mutate)


async def _a_doubt_is_settled_beside_an_open_gate(stage: Stage) -> None:
    """Of two calls one is in doubt and then settled; the other's approval never comes (and so nobody waits for it)."""

    async def act(ctx: Context) -> Any:
        await stage.perform(ctx, Recovery.MANUAL)
        raise RuntimeError("connection reset")

    tools = stage.tool(Recovery.MANUAL, act), stage.tool(Recovery.KEYED, name="gated", needs_approval=True)
    await stage.ready(stage.app(*tools, script=([("act", {}), ("gated", {})], "done")))
    await stage.cluster.start("r1", "a", "r1")
    await stage.until(lambda: stage.has(Interrupted, 2))
    await stage.resolve("result", result={"id": "r1:2"})
    await stage.until(lambda: stage.has(ToolReturned))


# --- bounds -----------------------------------------------------------------------------------------------------


def _no_bound_for_stale_requests() -> Planted:
    def mutate(real: Any) -> Any:
        def again(run: Any, key: Any) -> None:
            run.stale_appends[key.step] = 0
            real(run, key)

        return again

    return replaced(outcomes, "_again_for_freshness", mutate)


async def _a_starved_owner(stage: Stage) -> None:
    """For minutes every acknowledgement of a tool request comes too late."""
    _, log = await stage.ready(stage.one_tool(Recovery.MANUAL))
    stage.thinks["r1", 0] = asyncio.Event()
    await stage.start()
    await stage.until(lambda: stage.book.questions)
    log.ack_delay = 6.0
    stage.thinks["r1", 0].set()
    await asyncio.sleep(200)
    log.ack_delay = 0.0


def _crashes_are_not_counted() -> Planted:
    return replaced(recovery, "lost_too_often", lambda _: lambda *_: False)


async def _a_call_kills_its_process(stage: Stage) -> None:
    """Three times; then a person looks, and lets it be tried again."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt <= 4:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.KEYED)

    app = stage.one_tool(Recovery.KEYED, act)
    await stage.start()
    for number in range(1, 5):
        node, _ = await stage.ready(app, f"p{number}")
        await stage.until(lambda: len(stage.book.calls) >= number or stage.has(Interrupted))  # noqa: B023 - awaited here
        if stage.has(Interrupted):
            await stage.cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            await stage.until(lambda: len(stage.book.calls) >= 4)
        node.kill()
    await stage.ready(app, "p5")


# --- what is told -----------------------------------------------------------------------------------------------


def _published_behind_the_commit() -> Planted:
    kept: set[asyncio.Task[Any]] = set()

    def mutate(real: Any) -> Any:
        async def publish(self: Outbox, items: Any) -> Sent:
            async def later() -> None:
                await asyncio.sleep(1)
                await real(self, items)

            task = asyncio.get_running_loop().create_task(later())
            kept.add(task)
            task.add_done_callback(kept.discard)
            await asyncio.sleep(0)
            return Sent(0, 0)

        return publish

    return replaced(Outbox, "publish", mutate)


async def _the_compactor_dies_behind_its_commit(stage: Stage) -> None:
    """Right after the transaction in which the run's end was stored."""
    await stage.ready(stage.one_tool(Recovery.KEYED))
    await stage.start()
    await stage.until(lambda: stage.has(RunCompleted))
    await stage.applied()
    stage.compactor().kill()
    stage.cluster.start_compactor()


MUTATIONS = (
    Mutation(
        "settled-twice-valid",
        "readers count a record that settles an input which is settled already",
        INPUTS,
        outside.dead_copies_are_of_dead_inputs,
        _settled_twice_counts,
        _a_record_settles_a_settled_input,
    ),
    Mutation(
        "buried-by-owner",
        "the owner copies a refused input to `dead` before its record is valid",
        INPUTS,
        outside.dead_copies_are_of_dead_inputs,
        _the_owner_buries,
        _an_approval_comes_before_its_gate,
        {"inputs": LateInputs},
    ),
    Mutation(
        "ids-not-remembered",
        "the second of two inputs with one id has an effect too",
        INPUTS,
        outside.ids_have_one_effect,
        _ids_are_not_remembered,
        _an_input_is_sent_twice,
    ),
    Mutation(
        "any-arguments-approved",
        "an approval of other arguments than the gate's opens it",
        INPUTS,
        outside.approvals_are_of_what_was_shown,
        _any_arguments_are_approved,
        _an_approval_of_other_arguments,
    ),
    Mutation(
        "wait-closed-twice",
        "an approval that was used is open",
        INPUTS,
        outside.no_input_is_unrecordable,
        _a_used_approval_is_open,
        _an_approval_is_given_twice,
    ),
    Mutation(
        "closed-call-judged",
        "a verdict about a call that has returned is taken",
        INPUTS,
        outside.no_input_is_unrecordable,
        _verdicts_about_closed_calls_are_taken,
        _a_verdict_comes_behind_the_outcome,
    ),
    Mutation(
        "doubt-left-open",
        "a call in doubt that has returned leaves its wait open until the turn is closed",
        TABLES,
        outside.doubts_are_about_calls_in_doubt,
        _only_a_closed_turn_ends_a_doubt,
        _a_doubt_is_settled_beside_an_open_gate,
    ),
    Mutation(
        "stale-without-bound",
        "a request is appended again for want of freshness without a bound",
        BOUNDED,
        outside.attempts_are_bounded,
        _no_bound_for_stale_requests,
        _a_starved_owner,
    ),
    Mutation(
        "crashes-not-counted",
        "a call that kills its process is executed again and again",
        BOUNDED,
        outside.attempts_are_bounded,
        _crashes_are_not_counted,
        _a_call_kills_its_process,
    ),
    Mutation(
        "published-behind-commit",
        "notifications are published behind the transaction",
        TABLES,
        outside.notifications_are_of_valid_events,
        _published_behind_the_commit,
        _the_compactor_dies_behind_its_commit,
    ),
)
