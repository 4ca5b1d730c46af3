"""Faults about what a downstream, or the effects table, knows of a key: how long, how soon, under which name."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import replace
from typing import Any

from runfold import ABSENT, Recovery
from runfold.adapters.memory.effects import CommitFate, MemoryEffects
from runfold.core.events import Interrupted, Why
from runfold.runtime.executor import again, kept, outcomes, work
from runfold.runtime.reconciler import reconciler
from runfold.testing.simulation import checkers, outside
from runfold.testing.simulation.cluster import ExecutorNode
from tests.mutations.planting import ONCE, Mutation, Planted, replaced, together
from tests.mutations.recovery import a_lookup_tool_raises, acts_then
from tests.mutations.stage import Body, Context, Stage

# --- lookups ----------------------------------------------------------------------------------------------------


def _shows_after(stage: Stage, seconds: float, until: float = 1e9) -> Body:
    """A lookup that finds the effect only between these two moments."""

    async def find(_: Context) -> Any:
        is_shown = seconds <= asyncio.get_running_loop().time() < until
        return stage.book.results.get("r1:2", ABSENT) if is_shown else ABSENT

    return find


def _the_reconciler_does_not_let_lookups_settle() -> Planted:
    def mutate(real: Any) -> Any:
        return lambda due, *others: real(replace(due, settles_in_s=0.0), *others)

    return replaced(reconciler, "judge", mutate)


async def _an_owner_dies_and_the_effect_shows_late(stage: Stage) -> None:
    """P0 dies behind the effect, which the downstream's search finds twenty seconds later."""
    body, find = acts_then(stage, Recovery.LOOKUP, "hang"), _shows_after(stage, 20)
    app = stage.one_tool(Recovery.LOOKUP, body, lookup=find, timeout=5.0, settle=40.0)
    await stage.dead_behind_the_effect(app)
    stage.cluster.start_reconciler(app)


def _the_owner_does_not_let_lookups_settle() -> Planted:
    return replaced(outcomes, "_unsettled", lambda _: lambda *_: 0.0)


async def _a_tool_raises_and_the_effect_shows_late(stage: Stage) -> None:
    """The same, for the live owner's own call."""
    body, find = acts_then(stage, Recovery.LOOKUP, "raise"), _shows_after(stage, 20)
    await stage.ready(stage.one_tool(Recovery.LOOKUP, body, lookup=find, timeout=5.0, settle=40.0))
    await stage.start()


def _keys_are_remembered_for_ever() -> Planted:
    return replaced(again, "is_forgotten", lambda _: lambda *_: False)


async def _nobody_is_there_for_longer_than_a_key_lives(stage: Stage) -> None:
    """P0 dies behind the effect; the downstream has forgotten the key when the next owner comes; a person knows."""
    body, find = acts_then(stage, Recovery.LOOKUP, "hang"), _shows_after(stage, 0, until=60)
    app = stage.one_tool(Recovery.LOOKUP, body, lookup=find, timeout=5.0, key_ttl=60.0)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(stage.acts)
    p0.kill()
    await asyncio.sleep(120)
    await stage.ready(app, "p1")
    stage.cluster.start_reconciler(app)
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


def _each_attempt_has_its_own_key() -> Planted:
    def mutate(real: Any) -> Any:
        async def invocation(*given: Any, **named: Any) -> Any:
            made = await real(*given, **named)
            return replace(made, idempotency_key=f"{made.idempotency_key}:{made.attempt}")

        return invocation

    return replaced(work, "invocation", mutate)


# --- the effects table ------------------------------------------------------------------------------------------


def _the_table_is_not_believed() -> Planted:
    return replaced(MemoryEffects, "_stored", lambda _: lambda *_: None)


async def _an_owner_dies_behind_its_commit(stage: Stage) -> None:
    """TRANSACTIONAL: the author's rows are committed with their key, and the process that did it says nothing more."""

    async def act(ctx: Context) -> Any:
        await stage.book.performs(ctx)
        return "done"

    nodes: list[ExecutorNode] = []

    def die(_: Any) -> CommitFate:
        if len(nodes) == 1:
            asyncio.get_running_loop().call_soon(nodes[0].kill, context=contextvars.Context())
        return "answered"

    stage.cluster.effects_database.fate = die
    app = stage.one_tool(Recovery.TRANSACTIONAL, act, timeout=5.0)
    nodes.append((await stage.ready(app))[0])
    await stage.start()
    await stage.until(lambda: stage.cluster.effects_database.committed)
    nodes.append((await stage.ready(app, "p1"))[0])


def _a_claim_without_an_outcome_is_nothing() -> Planted:
    def granted(real: Any) -> Any:
        return lambda self, effect, _absent_upto, holder: real(self, effect, effect.attempt, holder)

    def begun(real: Any) -> Any:
        def run_again(run: Any, batch: Any, state: Any, call: Any, attempt: int) -> None:
            if call.attempt == 1:
                again.request(run, batch, state, call, Why.TAKEOVER)
            else:
                real(run, batch, state, call, attempt)

        return run_again

    return together(replaced(kept, "begun", begun), replaced(MemoryEffects, "claim", granted))


async def _an_owner_dies_in_a_call_of_a_downstream_without_keys(stage: Stage) -> None:
    """``dedupe``: the claim is committed and the effect had; nobody recorded that. A person finds out."""

    async def act(ctx: Context) -> Any:
        result = stage.book.performed(ctx, Recovery.KEYED, {"id": "r1:2"}, only_once=True)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return result

    app = stage.one_tool(Recovery.KEYED, act, dedupe=True, timeout=5.0)
    await stage.dead_behind_the_effect(app)
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


MUTATIONS = (
    Mutation(
        "settle-ignored-by-reconciler",
        "the reconciler believes `absent` before the lookup has settled",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _the_reconciler_does_not_let_lookups_settle,
        _an_owner_dies_and_the_effect_shows_late,
    ),
    Mutation(
        "settle-ignored-by-owner",
        "the owner believes `absent` about its own call before the lookup has settled",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _the_owner_does_not_let_lookups_settle,
        _a_tool_raises_and_the_effect_shows_late,
    ),
    Mutation(
        "key-ttl-ignored",
        "`absent` is believed about a key that the downstream may have forgotten",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _keys_are_remembered_for_ever,
        _nobody_is_there_for_longer_than_a_key_lives,
    ),
    Mutation(
        "key-per-attempt",
        "each attempt of a step has another idempotency key",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _each_attempt_has_its_own_key,
        a_lookup_tool_raises,
    ),
    Mutation(
        "effects-table-not-asked",
        "a TRANSACTIONAL call is executed whatever stands under its key",
        ONCE,
        outside.transactions_commit_at_most_once,
        _the_table_is_not_believed,
        _an_owner_dies_behind_its_commit,
    ),
    Mutation(
        "claim-not-believed",
        "a key that is claimed and has no outcome is called again, and the table grants it",
        ONCE,
        checkers.known_keys_have_one_effect,
        _a_claim_without_an_outcome_is_nothing,
        _an_owner_dies_in_a_call_of_a_downstream_without_keys,
    ),
)
