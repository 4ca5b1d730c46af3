"""Faults of recovery: what is done about a request of which nobody knows whether it was performed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from runfold import Recovery
from runfold.codec import inputs as codec_inputs
from runfold.codec.input_types import VerdictInput
from runfold.core.events import Interrupted, ModelResponded, RunStarted, ToolReturned, Why
from runfold.runtime.executor import again, outcomes, recovery, rulings
from runfold.runtime.executor.driver import Driver
from runfold.runtime.executor.run import Run
from runfold.runtime.reconciler import reconciler
from runfold.testing.simulation import checkers
from runfold.testing.simulation.cluster import TOPICS
from tests.mutations.planting import ENDS, FENCED, ONCE, Mutation, Planted, replaced
from tests.mutations.stage import Body, Context, Stage, is_a, is_tool_request


def acts_then(stage: Stage, recovery_class: Recovery, ending: str, attempts: tuple[int, ...] = (1,)) -> Body:
    """A tool that has its effect, and in these attempts hangs behind it, or raises."""

    async def act(ctx: Context) -> Any:
        result = await stage.perform(ctx, recovery_class)
        if ctx.attempt in attempts:
            if ending == "raise":
                raise RuntimeError("connection reset")
            await asyncio.Event().wait()
        return result

    return act


# --- LOOKUP -----------------------------------------------------------------------------------------------------


def _a_new_owner_runs_lookup_calls_again() -> Planted:
    def mutate(real: Any) -> Any:
        def recover(run: Any, batch: Any, state: Any, call: Any) -> None:
            if call.recovery is Recovery.LOOKUP:
                again.request(run, batch, state, call, Why.TAKEOVER)
            else:
                real(run, batch, state, call)

        return recover

    return replaced(recovery, "_recover_call", mutate)


async def _an_owner_dies_in_a_lookup_call(stage: Stage) -> None:
    """P0 dies behind the effect; the reconciler asks the lookup."""
    app = stage.one_tool(Recovery.LOOKUP, acts_then(stage, Recovery.LOOKUP, "hang"), timeout=5.0)
    await stage.dead_behind_the_effect(app)
    stage.cluster.start_reconciler(app)


def _retried(recovery_class: Recovery) -> Planted:
    """An exception of a tool of this class is answered by another attempt."""

    def mutate(real: Any) -> Any:
        def unknown(run: Any, batch: Any, state: Any, call: Any, outcome: Any) -> None:
            if call.recovery is recovery_class and call.attempt == 1:
                again.request(run, batch, state, call, Why.RETRY)
            else:
                real(run, batch, state, call, outcome)

        return unknown

    return replaced(outcomes, "_unknown", mutate)


def _lookup_exceptions_are_retried() -> Planted:
    return _retried(Recovery.LOOKUP)


async def a_lookup_tool_raises(stage: Stage) -> None:
    """The effect happened, and the answer was lost."""
    await stage.ready(stage.one_tool(Recovery.LOOKUP, acts_then(stage, Recovery.LOOKUP, "raise")))
    await stage.start()


def _the_reconciler_believes_an_early_absent() -> Planted:
    def mutate(real: Any) -> Any:
        return lambda due, *others: real(replace(due, overdue=True, settles_in_s=0.0), *others)

    return replaced(reconciler, "judge", mutate)


async def _a_zombie_acts_within_its_time(stage: Stage) -> None:
    """P0 sleeps between acknowledgement and call; the reconciler asks; P0 wakes while it may still act, and does."""
    app = stage.one_tool(Recovery.LOOKUP, timeout=5.0)
    p0 = await stage.asleep_before_acting(app, is_tool_request)
    stage.cluster.start_reconciler(app)
    await asyncio.sleep(3)
    await stage.wake(p0)


def _no_grace_before_the_own_lookup() -> Planted:
    def mutate(real: Any) -> Any:
        def unknown(run: Any, batch: Any, state: Any, call: Any, outcome: Any) -> None:
            real(run, batch, state, call, replace(outcome, timed_out=False))

        return unknown

    return replaced(outcomes, "_unknown", mutate)


async def _an_effect_comes_behind_its_time(stage: Stage) -> None:
    """The call's time is over while its request is still on the way: the effect comes two seconds later."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt > 1:
            return await stage.perform(ctx, Recovery.LOOKUP)
        asyncio.get_running_loop().call_later(7, stage.book.performed, ctx, Recovery.LOOKUP, {"id": "r1:2"})
        await asyncio.Event().wait()
        return None

    await stage.ready(stage.one_tool(Recovery.LOOKUP, act, timeout=5.0))
    await stage.start()


def _lookups_never_end() -> Planted:
    def mutate(real: Any) -> Any:
        def undecided(run: Any, *others: Any) -> None:
            run.lookup_tries.clear()
            real(run, *others)

        return undecided

    return replaced(outcomes, "_undecided", mutate)


async def _a_lookup_never_knows(stage: Stage) -> None:
    """The tool raises, and so does its lookup, every time; a person is asked."""

    async def act(_: Context) -> Any:
        raise RuntimeError("connection reset")

    async def find(_: Context) -> Any:
        raise RuntimeError("no connection")

    await stage.ready(stage.one_tool(Recovery.LOOKUP, act, lookup=find))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


def _a_late_verdict_is_about_the_open_attempt() -> Planted:
    def mutate(real: Any) -> Any:
        async def verdict(run: Any, batch: Any, state: Any, given: Any, cause: Any) -> Any:
            call = state.call_at(given.step)
            return await real(run, batch, state, given if call is None else replace(given, attempt=call.attempt), cause)

        return verdict

    return replaced(rulings, "_verdict", mutate)


async def _a_verdict_comes_late(stage: Stage) -> None:
    """Attempt 1 never happened, which is said twice; the second time the owner of attempt 2 is dead as well."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt == 2:
            await stage.perform(ctx, Recovery.LOOKUP)
        if ctx.attempt < 3:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.LOOKUP)

    app = stage.one_tool(Recovery.LOOKUP, act, timeout=5.0)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: len(stage.book.calls) == 1)
    p0.kill()
    p1, _ = await stage.ready(app, "p1")
    await _say(stage, "absent")
    await stage.until(stage.acts)
    p1.kill()
    await stage.ready(app, "p2")
    await _say(stage, "absent")
    await asyncio.sleep(1)
    stage.cluster.start_reconciler(app)


async def _say(stage: Stage, outcome: Any, **fields: Any) -> None:
    """Publish a verdict about attempt 1 of step 2."""
    verdict = VerdictInput(run_id="r1", step=2, attempt=1, outcome=outcome, verdict_by="reconciler", **fields)
    await stage.cluster.send(TOPICS.control, "r1", codec_inputs.encode_verdict(verdict))


# --- MANUAL -----------------------------------------------------------------------------------------------------


def _manual_exceptions_are_retried() -> Planted:
    return _retried(Recovery.MANUAL)


async def _a_manual_tool_raises(stage: Stage) -> None:
    """The mail is out, and the connection breaks; a person finds out."""
    await stage.ready(stage.one_tool(Recovery.MANUAL, acts_then(stage, Recovery.MANUAL, "raise")))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


def _doubt_at_once() -> Planted:
    def mutate(real: Any) -> Any:
        def later(run: Any, call: Any) -> None:
            after = run.mailbox.after
            run.mailbox.after = lambda _, action: after(0.0, action)
            try:
                real(run, call)
            finally:
                del run.mailbox.after

        return later

    return replaced(recovery, "_doubt_later", mutate)


async def a_quick_person(stage: Stage) -> None:
    """P0 sleeps with a fresh acknowledgement of a MANUAL call; whoever is asked looks at once, and says what is so."""
    app = stage.one_tool(Recovery.MANUAL, timeout=5.0)
    p0 = await stage.asleep_before_acting(app, is_tool_request)
    waking = asyncio.create_task(_wake_later(stage, p0))
    await stage.until(lambda: stage.has(Interrupted) or stage.has(ToolReturned))
    ticket = stage.book.results.get("r1:2")
    if ticket is None:
        await stage.resolve("absent")
    else:
        await stage.resolve("result", result=ticket)
    await waking


async def _wake_later(stage: Stage, node: Any) -> None:
    await asyncio.sleep(3)
    await stage.wake(node)


# --- what is known ----------------------------------------------------------------------------------------------


def _survivors_are_dropped() -> Planted:
    def mutate(_: Any) -> Any:
        def attach(run: Any) -> None:
            for key in run.world.effects.keys(run.run_id):
                run.world.effects.forget(key)

        return attach

    return replaced(recovery, "attach_survivors", mutate)


async def _an_epoch_ends_in_a_call(stage: Stage) -> None:
    """Another run's record is lost while a MANUAL call is under way: the same process claims again."""
    go = asyncio.Event()

    async def act(ctx: Context) -> Any:
        await go.wait()
        return await stage.perform(ctx, Recovery.MANUAL)

    _, log = await stage.ready(stage.one_tool(Recovery.MANUAL, act))
    await stage.start()
    await stage.until(lambda: stage.book.calls)
    log.lose = is_a(RunStarted)
    await stage.start("r2")
    await stage.until(lambda: stage.claims() > 1 and stage.has(RunStarted, run_id="r2"))
    go.set()


def _outcomes_are_forgotten_when_heard() -> Planted:
    def mutate(real: Any) -> Any:
        def hear(self: Run, key: Any, outcome: Any) -> None:
            self.world.effects.forget(key)
            real(self, key, outcome)

        return hear

    return replaced(Run, "hear", mutate)


async def _an_outcome_is_lost(stage: Stage) -> None:
    """A MANUAL call has answered; the record that says so does not reach the log."""
    _, log = await stage.ready(stage.one_tool(Recovery.MANUAL))
    log.lose = is_a(ToolReturned)
    await stage.start()


def _memory_outlives_the_epoch() -> Planted:
    remembered: dict[tuple[int, str], Run] = {}

    def mutate(real: Any) -> Any:
        def init(self: Driver, tenure: Any, run_id: str, loaded: Any) -> None:
            real(self, tenure, run_id, loaded)
            old = remembered.get((id(tenure.world), run_id))
            if old is not None and old.state is not None and loaded is not None:
                self.run.state, self.run.dangling = old.state, old.state.has_open_request
            remembered[id(tenure.world), run_id] = self.run

        return init

    return replaced(Driver, "__init__", mutate)


async def _a_completion_is_lost(stage: Stage) -> None:
    """The completion, and with it the first decision that was made on it, is lost."""
    _, log = await stage.ready(stage.one_tool(Recovery.RERUN))
    log.lose = is_a(ModelResponded)
    await stage.start()


MUTATIONS = (
    Mutation(
        "lookup-skipped-at-takeover",
        "a new owner runs a dangling LOOKUP call again, without asking",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _a_new_owner_runs_lookup_calls_again,
        _an_owner_dies_in_a_lookup_call,
    ),
    Mutation(
        "lookup-skipped-after-exception",
        "a LOOKUP call that raised is run again, without asking",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _lookup_exceptions_are_retried,
        a_lookup_tool_raises,
    ),
    Mutation(
        "early-absent-by-reconciler",
        "the reconciler believes `absent` before time-out and grace are over",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _the_reconciler_believes_an_early_absent,
        _a_zombie_acts_within_its_time,
    ),
    Mutation(
        "early-absent-by-owner",
        "the owner asks the lookup of a call that timed out at once, without the grace",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _no_grace_before_the_own_lookup,
        _an_effect_comes_behind_its_time,
    ),
    Mutation(
        "lookups-without-end",
        "a lookup that never knows is asked for ever",
        ENDS,
        checkers.every_run_ends,
        _lookups_never_end,
        _a_lookup_never_knows,
    ),
    Mutation(
        "late-verdict-believed",
        "a verdict about an earlier attempt is taken for one about the open attempt",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _a_late_verdict_is_about_the_open_attempt,
        _a_verdict_comes_late,
    ),
    Mutation(
        "manual-retried",
        "a MANUAL call that raised is run again",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _manual_exceptions_are_retried,
        _a_manual_tool_raises,
    ),
    Mutation(
        "manual-doubted-at-once",
        "a new owner calls a dead writer's MANUAL call indeterminate without waiting for its time and the grace",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _doubt_at_once,
        a_quick_person,
    ),
    Mutation(
        "survivor-dropped",
        "effects in flight are forgotten when the partition is claimed again",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _survivors_are_dropped,
        _an_epoch_ends_in_a_call,
    ),
    Mutation(
        "outcome-forgotten-when-heard",
        "an outcome is forgotten when it is heard, not when it is durable",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _outcomes_are_forgotten_when_heard,
        _an_outcome_is_lost,
    ),
    Mutation(
        "memory-outlives-epoch",
        "what an epoch that is over had in memory is gone on with, appended or not",
        FENCED,
        checkers.tools_act_only_after_their_valid_request,
        _memory_outlives_the_epoch,
        _a_completion_is_lost,
    ),
)
