"""Faults of taking over: what a new owner brings into memory, from where it replays, and what it skips."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from runfold import Recovery
from runfold.adapters.memory.store import MemoryStore
from runfold.core.events import Interrupted, ModelResponded, RunCompleted
from runfold.core.fence import Kind
from runfold.runtime.compactor.memory import Memory
from runfold.runtime.executor.horizon import Horizon
from runfold.runtime.restore import Replay
from runfold.testing.simulation import checkers
from runfold.testing.simulation.cluster import TOPICS
from tests.mutations.planting import ENDS, ONCE, RECORDED, TABLES, Mutation, Planted, replaced, together
from tests.mutations.stage import Context, Stage, is_a, is_tool_request


def _rows(changed: Any) -> Planted:
    """The compactor's partition row says something else."""
    return replaced(Memory, "_next_row", lambda real: lambda self, *given: changed(real(self, *given)))


def _hangs(stage: Stage, attempts: int) -> Any:
    """A KEYED tool whose first attempts never end."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt <= attempts:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.KEYED)

    return stage.one_tool(Recovery.KEYED, act)


# --- from where the log is replayed -----------------------------------------------------------------------------


def _replay_from_is_not_kept() -> Planted:
    return _rows(lambda row: replace(row, replay_from=row.applied, replay_epoch=row.epoch))


async def _an_owner_dies(stage: Stage) -> None:
    """P0 dies in a call; the log is applied, and no snapshot covers the run."""
    app = _hangs(stage, 1)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.book.calls)
    await stage.applied()
    p0.kill()
    await stage.ready(app, "p1")


def _its_epoch_is_not_kept() -> Planted:
    return _rows(lambda row: replace(row, replay_epoch=row.epoch))


async def _two_owners_die(stage: Stage) -> None:
    """The run's first events are of an earlier epoch than the one in force at the end of what is applied."""
    app = _hangs(stage, 2)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.book.calls)
    p0.kill()
    p1, _ = await stage.ready(app, "p1")
    await stage.until(lambda: len(stage.book.calls) > 1)
    await stage.applied()
    p1.kill()
    await stage.ready(app, "p2")


def _applied_is_one_too_far() -> Planted:
    return _rows(lambda row: replace(row, applied=row.applied + 1))


def _the_replay_ends_early() -> Planted:
    return replaced(Replay, "read", lambda real: lambda self, start, end, **named: real(self, start, end - 1, **named))


async def _an_owner_dies_behind_a_completion(stage: Stage) -> None:
    """The completion is the last record of the log."""
    app = stage.one_tool(Recovery.KEYED, needs_approval=True)
    p0, log = await stage.ready(app)
    log.trap = is_a(ModelResponded)
    await stage.start()
    await stage.until(lambda: log.hold_acks)
    p0.kill()
    await stage.ready(app, "p1")
    await stage.until(lambda: stage.has(Interrupted))
    await stage.cluster.approve("r1", 2)


# --- what is skipped --------------------------------------------------------------------------------------------


def _skipped_by_seq() -> Planted:
    def mutate(real: Any) -> Any:
        def apply(self: Replay, record: Any, head: Any) -> Any:
            loaded = None if record.key is None else self.runs.get(record.key)
            if loaded is None or head.kind is not Kind.EVENT:
                return real(self, record, head)
            if head.seq <= loaded.snapshot_seq:
                return None
            covered, loaded.covered = loaded.covered, -1
            try:
                return real(self, record, head)
            finally:
                loaded.covered = max(loaded.covered, covered)

        return apply

    return replaced(Replay, "_apply", mutate)


async def _a_void_record_has_the_next_seq(stage: Stage) -> None:
    """A completion is lost, the request behind it is void; later a snapshot ends right before its seq.

    r2, which no snapshot covers, makes the take-over read the log from before that record on.
    """
    stage.thinks["r2", 0] = asyncio.Event()
    app = stage.one_tool(Recovery.MANUAL)
    p0, log = await stage.ready(app)
    await stage.start("r2")
    await stage.until(lambda: stage.book.questions)
    log.lose = is_a(ModelResponded)
    await stage.start("r1")
    await stage.until(lambda: any(is_tool_request(record) for record in stage.log()))
    log.lose = is_tool_request
    await stage.until(lambda: stage.has(ModelResponded))
    p0.kill()
    stage.thinks["r2", 0].set()
    await stage.until(lambda: 2 in stage.cluster.database.snapshots["r1"])
    await stage.ready(app, "p1")


async def an_owner_dies_behind_an_approval(stage: Stage) -> None:
    """A snapshot stands at the wait; the approval's record is the very next one, and then P0 dies in the call."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.KEYED)

    app = stage.one_tool(Recovery.KEYED, act, needs_approval=True)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.applied()
    await stage.cluster.approve("r1", 2)
    await stage.until(lambda: stage.book.calls)
    await stage.applied()
    p0.kill()
    await stage.ready(app, "p1")


# --- snapshots that cannot be read ------------------------------------------------------------------------------


def _a_set_aside_snapshot_leaves_a_hole() -> Planted:
    async def refold(_: Replay, loaded: Any, *__: Any) -> Any:
        await asyncio.sleep(0)
        return loaded

    return replaced(Replay, "_refold", lambda _: refold)


async def _a_snapshot_is_corrupt(stage: Stage, *, trimmed: bool = False) -> None:
    """The newest one of a waiting run, which has left memory; the one before it is of an earlier wait."""
    tool = stage.tool(Recovery.KEYED, needs_approval=True)
    p0, _ = await stage.ready(stage.app(tool, script=(("act", {}), ("act", {}), "done")))
    await stage.start()
    for step in (2, 5):
        await stage.until(lambda: stage.is_applied() and p0.executor.runs_in_memory == 0)
        if step == 2:
            await stage.cluster.approve("r1", step)
        await stage.until(lambda: stage.has(Interrupted, 2))
    snapshots = stage.cluster.database.snapshots["r1"]
    newest = max(snapshots)
    snapshots[newest] = replace(snapshots[newest], state=snapshots[newest].state[:-1])
    if trimmed:
        stage.history.partitions()  # the judge has read what is deleted now
        stage.cluster.broker.delete_before(TOPICS.log, 0, snapshots[min(snapshots)].offset + 1)
    await stage.cluster.approve("r1", 5)


async def _a_snapshot_is_corrupt_and_the_log_trimmed(stage: Stage) -> None:
    """As above; the log is gone up to the snapshot before it."""
    await _a_snapshot_is_corrupt(stage, trimmed=True)


def _where_a_run_goes_on_is_not_kept() -> Planted:
    def mutate(real: Any) -> Any:
        def write(self: Memory, commit: Any, *others: Any) -> None:
            real(self, commit, *others)
            commit.next_events.clear()

        return write

    return replaced(Memory, "_write", mutate)


# --- what Postgres says -----------------------------------------------------------------------------------------


def _row_and_runs_are_of_two_moments() -> Planted:
    def mutate(real: Any) -> Any:
        async def load_partition(self: MemoryStore, *given: Any) -> Any:
            row, _ = await real(self, *given)
            await asyncio.sleep(1)
            _, runs = await real(self, *given)
            return row, runs

        return load_partition

    def ahead_is_taken(real: Any) -> Any:
        return lambda self, run, upto, _before: real(self, run, upto, None)

    return together(replaced(MemoryStore, "load_partition", mutate), replaced(Replay, "_load", ahead_is_taken))


async def the_compactor_catches_up_during_a_take_over(stage: Stage) -> None:
    """It commits a person's "absent", and the doubt about the next attempt, while P1 reads."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt > 1:
            await stage.perform(ctx, Recovery.MANUAL)
        raise RuntimeError("connection reset")

    app = stage.one_tool(Recovery.MANUAL, act, timeout=1.0)
    p0, _ = await stage.ready(app)
    compactor = stage.compactor()
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await stage.applied()
    compactor.process.pause()
    await stage.resolve("absent")
    await stage.until(lambda: stage.has(Interrupted, 2))
    p0.kill()
    await stage.until(lambda: p0.membership not in stage.members())
    reading = asyncio.create_task(stage.ready(app, "p1"))
    await asyncio.sleep(1.5)
    compactor.resume()
    await reading
    await asyncio.sleep(30)
    await stage.resolve("result", result={"id": "r1:2"})


def _any_answer_is_believed() -> Planted:
    return replaced(Horizon, "believe", lambda _: lambda *_: None)


async def _postgres_is_lost(stage: Stage) -> None:
    """All of it, while the executor lives and before the compactor folds again; then a start comes a second time."""
    p0, _ = await stage.ready(stage.one_tool(Recovery.RERUN))
    compactor = stage.compactor()
    await stage.start()
    await stage.until(lambda: stage.has(RunCompleted))
    await stage.until(lambda: stage.is_applied() and p0.executor.runs_in_memory == 0)
    compactor.process.pause()
    database = stage.cluster.database
    for table in (database.partitions, database.runs, database.snapshots, database.chunks):
        table.clear()
    await stage.cluster.start("r1", "a", "r1")
    await asyncio.sleep(5)
    compactor.resume()


MUTATIONS = (
    Mutation(
        "replay-from-not-kept",
        "the replay starts at `applied`, whatever no snapshot covers",
        ENDS,
        checkers.every_run_ends,
        _replay_from_is_not_kept,
        _an_owner_dies,
    ),
    Mutation(
        "replay-epoch-not-kept",
        "the replay starts in the epoch of `applied`",
        ENDS,
        checkers.every_run_ends,
        _its_epoch_is_not_kept,
        _two_owners_die,
    ),
    Mutation(
        "applied-one-too-far",
        "`applied` is one record ahead of what was folded",
        TABLES,
        checkers.tables_reach_the_end_of_the_log,
        _applied_is_one_too_far,
        _an_owner_dies,
    ),
    Mutation(
        "replay-one-short",
        "the replay ends one record before the claim: a recorded completion is dropped",
        RECORDED,
        checkers.recorded_completions_are_never_asked_for_again,
        _the_replay_ends_early,
        _an_owner_dies_behind_a_completion,
    ),
    Mutation(
        "skipped-by-seq",
        "what a snapshot covers is skipped by `seq`",
        ENDS,
        checkers.every_run_ends,
        _skipped_by_seq,
        _a_void_record_has_the_next_seq,
        {"snapshot_every": 3},
    ),
    Mutation(
        "set-aside-leaves-hole",
        "behind a snapshot that is set aside the replay starts where the newer one would have let it",
        ENDS,
        checkers.every_run_ends,
        _a_set_aside_snapshot_leaves_a_hole,
        _a_snapshot_is_corrupt,
    ),
    Mutation(
        "next-event-not-kept",
        "a snapshot does not say where its run goes on",
        ENDS,
        checkers.every_run_ends,
        _where_a_run_goes_on_is_not_kept,
        _a_snapshot_is_corrupt_and_the_log_trimmed,
    ),
    Mutation(
        "torn-read",
        "row and runs of a take-over are read in two transactions, and a snapshot ahead of the row is taken",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _row_and_runs_are_of_two_moments,
        the_compactor_catches_up_during_a_take_over,
    ),
    Mutation(
        "older-postgres-believed",
        "Postgres is believed although it knows less than it did",
        RECORDED,
        checkers.recorded_completions_are_never_asked_for_again,
        _any_answer_is_believed,
        _postgres_is_lost,
    ),
)
