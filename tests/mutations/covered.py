"""Rules that another rule covers: without one of them alone no checker speaks in the schedule that it was made for.

They stay: each is a second line, or saves time. If one of these is noticed some day, it is no longer covered, and
belongs into the table of those that are caught.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runfold import Recovery
from runfold.adapters.memory.store import MemoryStore
from runfold.runtime.compactor import memory as compactor_memory
from runfold.runtime.executor import partition, rulings
from runfold.runtime.executor.work import Permit
from runfold.runtime.executor.writer import EpochWriter
from runfold.testing.simulation.cluster import TOPICS
from tests.mutations.ownership import a_claim_lands_late
from tests.mutations.planting import Planted, replaced
from tests.mutations.recovery import a_quick_person
from tests.mutations.stage import Context, Stage
from tests.mutations.takeover import an_owner_dies_behind_an_approval, the_compactor_catches_up_during_a_take_over


@dataclass(frozen=True, slots=True)
class Covered:
    """A rule, and the one that makes up for it.

    Attributes:
        name: Of the row in docs/mutations.md.
        fault: What the code does without it.
        covered_by: Why nothing comes of it.
        plant, scenario, settings: As of a mutation.
    """

    name: str
    fault: str
    covered_by: str
    plant: Callable[[], Planted]
    scenario: Callable[[Stage], Awaitable[None]]
    settings: Mapping[str, Any] = field(default_factory=dict)


def _any_age_is_fresh() -> Planted:
    return replaced(Permit, "is_good", lambda _: lambda self: not self.tenure.writer.over.done())


def _absent_is_believed_at_once() -> Planted:
    def mutate(real: Any) -> Any:
        def resolve(run: Any, *others: Any) -> Any:
            claimed_at, run.tenure.claimed_at = run.tenure.claimed_at, -1e9
            try:
                return real(run, *others)
            finally:
                run.tenure.claimed_at = claimed_at

        return resolve

    return replaced(rulings, "_resolve_absent", mutate)


def _nobody_looks_behind() -> Planted:
    async def look_behind(*_: Any) -> None:
        await asyncio.sleep(0)

    return replaced(EpochWriter, "look_behind", lambda _: look_behind)


def _a_row_from_the_future_is_accepted() -> Planted:
    def mutate(real: Any) -> Any:
        async def take_over(number: int, log: Any, store: Any, epoch: int) -> Any:
            row, replay = await real(number, log, store, epoch)
            return (row if row is None or row.epoch <= epoch else replace(row, epoch=epoch)), replay

        return take_over

    return replaced(partition, "take_over", mutate)


async def an_owner_restores_from_the_future(stage: Stage) -> None:
    """P0 claims and pauses; P1 claims, works and dies; the partition is P0's again, and the inputs are deleted."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.KEYED)

    app = stage.one_tool(Recovery.KEYED, act)
    p0, log = await stage.executor(app)
    log.hold_acks = True
    await stage.until(lambda: log.held_acks)
    p0.membership.kill()
    p1, _ = await stage.ready(app, "p1")
    await stage.start()
    await stage.until(lambda: stage.book.calls)
    await stage.applied()
    p1.kill()
    stage.cluster.broker.delete_before(TOPICS.requests, 0, 1)
    log.release()


def _row_and_runs_are_of_two_moments() -> Planted:
    def mutate(real: Any) -> Any:
        async def load_partition(self: MemoryStore, *given: Any) -> Any:
            row, _ = await real(self, *given)
            await asyncio.sleep(1)
            _, runs = await real(self, *given)
            return row, runs

        return load_partition

    return replaced(MemoryStore, "load_partition", mutate)


def _a_snapshot_covers_one_too_far() -> Planted:
    def mutate(real: Any) -> Any:
        def snapshot(*given: Any) -> Any:
            row, chunks = real(*given)
            return replace(row, offset=row.offset + 1), chunks

        return snapshot

    return replaced(compactor_memory, "snapshot", mutate)


COVERED = (
    Covered(
        "tool-freshness-off",
        "a tool is called on an acknowledgement of any age",
        "a call's time counts from the produce of its request, nothing is started after it, and whoever believes that "
        "something did not happen waits for it and the grace. (A model has no such time: see `freshness-off`.)",
        _any_age_is_fresh,
        a_quick_person,
    ),
    Covered(
        "absent-believed-at-once",
        "a new owner believes `resolve --absent` at once",
        "nobody is asked before the new owner has waited for time-out and grace, so a person who says the truth says "
        "it of a call that can act no more",
        _absent_is_believed_at_once,
        a_quick_person,
    ),
    Covered(
        "nobody-looks-behind",
        "an idle owner does not look for a claim that landed after its own",
        "whatever it appends next meets the gap, and every input is appended about; looking saves the waiting",
        _nobody_looks_behind,
        a_claim_lands_late,
    ),
    Covered(
        "row-from-the-future",
        "a row of a later epoch than the own claim is taken over",
        "the first append, or looking behind the claim, meets the later claim before anything acts",
        _a_row_from_the_future_is_accepted,
        an_owner_restores_from_the_future,
    ),
    Covered(
        "row-and-runs-of-two-moments",
        "row and runs of a take-over are read in two transactions",
        "a snapshot ahead of the row is left alone; without that too it is caught: see `torn-read`",
        _row_and_runs_are_of_two_moments,
        the_compactor_catches_up_during_a_take_over,
    ),
    Covered(
        "snapshot-one-too-far",
        "a snapshot says that it covers one record more than it does",
        "it is ahead of the row, and so left alone",
        _a_snapshot_covers_one_too_far,
        an_owner_dies_behind_an_approval,
    ),
)
