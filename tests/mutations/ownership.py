"""Faults of ownership: who may act, and whose records count. What the design calls the fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from runfold import Recovery
from runfold.core.events import Interrupted, ModelResponded, RunCompleted
from runfold.runtime import restore
from runfold.runtime.executor import partition
from runfold.runtime.executor.partition import PartitionOwner
from runfold.runtime.executor.work import Permit
from runfold.runtime.executor.writer import EpochWriter
from runfold.testing.simulation import checkers
from tests.mutations.planting import ENDS, FENCED, ONCE, RECORDED, TABLES, Mutation, Planted, replaced
from tests.mutations.stage import Context, Stage, is_a, is_model_request, is_tool_request

# --- the acknowledgement ----------------------------------------------------------------------------------------


def _act_before_the_acknowledgement() -> Planted:
    def mutate(real: Any) -> Any:
        async def append(self: EpochWriter, records: Any) -> float:
            waiting = asyncio.ensure_future(real(self, records))
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.sleep(0)
            return asyncio.get_running_loop().time()

        return append

    return replaced(EpochWriter, "append", mutate)


async def _a_request_is_lost(stage: Stage) -> None:
    """The first tool request never reaches the log."""
    _, log = await stage.ready(stage.one_tool(Recovery.RERUN))
    log.lose = is_tool_request
    await stage.start()


def _any_age_is_fresh() -> Planted:
    return replaced(Permit, "is_good", lambda _: lambda self: not self.tenure.writer.over.done())


async def _a_zombie_wakes_with_an_acknowledgement(stage: Stage) -> None:
    """P0 sleeps between a model request's acknowledgement and the question; P1 takes over and is answered."""
    app = stage.one_tool(Recovery.RERUN)
    p0 = await stage.asleep_before_acting(app, is_model_request)
    await stage.until(lambda: stage.has(RunCompleted))
    await asyncio.sleep(10)
    await stage.wake(p0)


def _no_gap_check() -> Planted:
    def mutate(real: Any) -> Any:
        def accept(self: Any, number: int, offset: int) -> None:
            self._expected = max(self._expected, offset)
            real(self, number, offset)

        return accept

    return replaced(EpochWriter, "_accept", mutate)


async def _an_owner_meets_a_gap(stage: Stage) -> None:
    """P0 is not told that it lost the partition; P1 claims it and is slow; an input comes, and P0 reads it."""
    app = stage.one_tool(Recovery.MANUAL)
    p0, _ = await stage.ready(app)
    p0.membership.kill()
    p1, _ = await stage.executor(app, "p1")
    await stage.until(lambda: stage.claims() > 1)
    p1.process.pause()
    await stage.start()
    await asyncio.sleep(0.15)
    p0.kill()
    p1.resume()


def _never_claim_again() -> Planted:
    return replaced(partition, "claim_backoff", lambda _: lambda *_: 1e6)


async def a_claim_lands_late(stage: Stage) -> None:
    """P0's claim lands behind P1's, and P0 is gone: P1 is still assigned the partition."""
    app = stage.one_tool(Recovery.KEYED)
    p0, log = await stage.executor(app)
    log.hold_landing = True
    await stage.until(lambda: log.held == 1)
    p0.membership.kill()
    await stage.ready(app, "p1")
    log.release()
    await asyncio.sleep(0.01)
    p0.kill()
    await stage.start()


# --- validity ---------------------------------------------------------------------------------------------------


def _readers_judge(is_valid: Callable[..., bool]) -> Planted:
    """The system's readers judge otherwise; the tests' own judge keeps the rule."""

    def mutate(real: Any) -> Any:
        def judge(self: Any, head: Any, key: Any, cause: Any) -> bool:
            return is_valid(lambda *given: real._is_valid(self, *given), self, head, key, cause)

        return type("LenientFence", (real,), {"__slots__": (), "_is_valid": judge})

    return replaced(restore, "Fence", mutate)


def _a_stale_epoch_counts() -> Planted:
    return _readers_judge(lambda real, fence, head, key, cause: real(head._replace(epoch=fence.epoch), key, cause))


async def _a_zombies_result_lands_late(stage: Stage) -> None:
    """P0's result reaches the log behind P1's claim; P1 knows nothing of it, and a person has to say it again."""
    go = asyncio.Event()

    async def act(ctx: Context) -> Any:
        result = await stage.perform(ctx, Recovery.MANUAL)
        await go.wait()
        return result

    app = stage.one_tool(Recovery.MANUAL, act, timeout=5.0)
    p0, log = await stage.ready(app)
    await stage.start()
    await stage.until(stage.acts)
    log.hold_landing = True
    go.set()
    await stage.until(lambda: log.held)
    stage.suspend(p0)
    await stage.ready(app, "p1")
    log.release()
    p0.kill()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


def _any_seq_counts() -> Planted:
    def is_valid(real: Any, fence: Any, head: Any, key: Any, cause: Any) -> bool:
        del real, key
        settled = cause is not None and fence.positions.is_settled(cause.topic, cause.offset)
        return bool(head.epoch == fence.epoch and not settled)

    return _readers_judge(is_valid)


async def _a_completion_is_lost(stage: Stage) -> None:
    """The completion is lost, the request pipelined behind it lands."""
    _, log = await stage.ready(stage.one_tool(Recovery.RERUN))
    log.lose = is_a(ModelResponded)
    await stage.start()


# --- one recovery path ------------------------------------------------------------------------------------------


def _no_epoch_is_its_own() -> Planted:
    def mutate(real: Any) -> Any:
        def begin(self: Any, epoch: int, group: Any) -> Any:
            tenure = real(self, epoch, group)
            tenure.own_epochs = frozenset()
            return tenure

        return begin

    return replaced(PartitionOwner, "_begin", mutate)


async def _requests_that_nobody_performed(stage: Stage) -> None:
    """Again and again a request lands and its acknowledgement is lost."""
    _, log = await stage.ready(stage.one_tool(Recovery.KEYED))
    log.lose = is_tool_request
    await stage.start()
    await stage.until(lambda: log.lose is None)
    log.fates.extend(["ok", "unknown"] * 6)


class _Everything(frozenset[int]):
    def __contains__(self, _: object) -> bool:
        return True


def _every_epoch_is_its_own() -> Planted:
    def mutate(real: Any) -> Any:
        def begin(self: Any, epoch: int, group: Any) -> Any:
            tenure = real(self, epoch, group)
            tenure.own_epochs = _Everything()
            return tenure

        return begin

    return replaced(PartitionOwner, "_begin", mutate)


async def _an_owner_dies_in_a_manual_call(stage: Stage) -> None:
    """P0 dies behind the effect; a person finds out."""

    async def act(ctx: Context) -> Any:
        result = await stage.perform(ctx, Recovery.MANUAL)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return result

    app = stage.one_tool(Recovery.MANUAL, act, timeout=5.0)
    await stage.dead_behind_the_effect(app)
    await stage.until(lambda: stage.has(Interrupted))
    await stage.resolve("result", result={"id": "r1:2"})


MUTATIONS = (
    Mutation(
        "act-before-acknowledgement",
        "an append returns before it is acknowledged",
        FENCED,
        checkers.tools_act_only_after_their_valid_request,
        _act_before_the_acknowledgement,
        _a_request_is_lost,
    ),
    Mutation(
        "freshness-off",
        "an acknowledgement of any age permits to act",
        RECORDED,
        checkers.recorded_completions_are_never_asked_for_again,
        _any_age_is_fresh,
        _a_zombie_wakes_with_an_acknowledgement,
    ),
    Mutation(
        "no-gap-check",
        "a gap in the acknowledged offsets is passed without being read",
        FENCED,
        checkers.tools_act_only_after_their_valid_request,
        _no_gap_check,
        _an_owner_meets_a_gap,
    ),
    Mutation(
        "never-claim-again",
        "an owner whose epoch is over does not claim again",
        ENDS,
        checkers.every_run_ends,
        _never_claim_again,
        a_claim_lands_late,
    ),
    Mutation(
        "stale-epoch-valid",
        "readers count an event of an epoch that is over",
        TABLES,
        checkers.rows_say_what_the_log_says,
        _a_stale_epoch_counts,
        _a_zombies_result_lands_late,
    ),
    Mutation(
        "any-seq-valid",
        "readers count an event whose `seq` is not its run's next",
        TABLES,
        checkers.rows_say_what_the_log_says,
        _any_seq_counts,
        _a_completion_is_lost,
    ),
    Mutation(
        "unperformed-counts-as-crash",
        "a request of the own process that was never performed counts as an attempt lost to a crash",
        ENDS,
        checkers.every_run_ends,
        _no_epoch_is_its_own,
        _requests_that_nobody_performed,
    ),
    Mutation(
        "crash-counts-as-unperformed",
        "a dead process's request counts as one that was never performed",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _every_epoch_is_its_own,
        _an_owner_dies_in_a_manual_call,
    ),
)
