"""Faults of the compactor and of what is read from it: tables, snapshots, notifications, the copies of dead inputs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from runfold import Recovery
from runfold.adapters.memory.store import MemoryStore
from runfold.codec import log as log_codec
from runfold.core.events import Interrupted, ModelResponded, RunCompleted
from runfold.ports.store import Commit, PartitionRow
from runfold.runtime.compactor.partition import PartitionCompactor
from runfold.runtime.restore import Replay
from runfold.testing.simulation import checkers
from tests.mutations.planting import ENDS, TABLES, Mutation, Planted, replaced, together
from tests.mutations.stage import Context, Stage


def _the_row_goes_before_the_snapshot() -> Planted:
    def mutate(real: Any) -> Any:
        async def commit(self: MemoryStore, given: Commit) -> PartitionRow:
            row: PartitionRow = await real(self, replace(given, snapshots=[], chunks=[], next_events=[]))
            await asyncio.sleep(1)
            stored: PartitionRow = await real(self, replace(given, row=row, expected_applied=row.applied))
            return stored

        return commit

    return replaced(MemoryStore, "commit", mutate)


async def _the_compactor_dies_when_the_row_is_there(stage: Stage) -> None:
    """And so does the executor, in the call of a run of which a snapshot was due."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return await stage.perform(ctx, Recovery.KEYED)

    app = stage.one_tool(Recovery.KEYED, act)
    p0, _ = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.book.calls)
    await stage.applied()
    stage.compactor().kill()
    stage.cluster.start_compactor()
    p0.kill()
    await stage.ready(app, "p1")


def _stale_compactors_commit(*, lowering: bool = False) -> Planted:
    def mutate(real: Any) -> Any:
        async def commit(self: MemoryStore, given: Commit) -> PartitionRow:
            stored = self._database.partitions.get(given.row.partition)
            version = 0 if stored is None else stored.version
            row: PartitionRow = await real(
                self, replace(given, row=replace(given.row, version=version), expected_applied=None)
            )
            if lowering:
                self._database.runs.update((run.run_id, run) for run in given.runs)
            return row

        return commit

    async def look(*_: Any) -> None:
        await asyncio.sleep(0)

    return together(
        replaced(MemoryStore, "commit", mutate), replaced(PartitionCompactor, "_look_at_row", lambda _: look)
    )


def _stale_compactors_lower_seqs() -> Planted:
    return _stale_compactors_commit(lowering=True)


class SlowCommits(MemoryStore):
    """A store whose transactions take a second to begin."""

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit, later."""
        await asyncio.sleep(1)
        return await super().commit(commit)


async def _a_compactor_sleeps_before_its_commit(stage: Stage) -> None:
    """Its partition goes to another one, which folds on to the end; then it wakes up."""
    await stage.ready(stage.one_tool(Recovery.KEYED, needs_approval=True))
    first = stage.compactor()
    await stage.until(stage.is_applied)
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await asyncio.sleep(0.5)
    stage.suspend(first)
    stage.cluster.start_compactor()
    await stage.cluster.approve("r1", 2)
    await stage.until(lambda: stage.has(RunCompleted))
    await stage.applied()
    await asyncio.sleep(10)
    await stage.wake(first)


def _void_records_are_spent() -> Planted:
    def mutate(real: Any) -> Any:
        def apply(self: Replay, record: Any, head: Any) -> Any:
            void = self.fence.void
            applied = real(self, record, head)
            loaded = None if record.key is None else self.runs.get(record.key)
            if self.fence.void > void and loaded is not None and loaded.state is not None:
                body = log_codec.decode(record.value)
                for name, count in body.usage if isinstance(body, ModelResponded) else ():
                    loaded.state.usage[name] = loaded.state.usage.get(name, 0) + count
            return applied

        return apply

    return replaced(Replay, "_apply", mutate)


async def _a_zombies_completion_lands_late(stage: Stage) -> None:
    """P0's completion reaches the log behind P1's claim: void, and P1 asks again."""
    stage.thinks["r1", 0] = asyncio.Event()
    app = stage.one_tool(Recovery.KEYED)
    p0, log = await stage.ready(app)
    await stage.start()
    await stage.until(lambda: stage.book.questions)
    log.hold_landing = True
    stage.thinks["r1", 0].set()
    await stage.until(lambda: log.held)
    stage.suspend(p0)
    await stage.executor(app, "p1")
    await stage.until(lambda: stage.claims() > 1)
    log.release()
    p0.kill()


MUTATIONS = (
    Mutation(
        "row-before-snapshot",
        "the partition row is committed in a transaction before that of the snapshots",
        ENDS,
        checkers.every_run_ends,
        _the_row_goes_before_the_snapshot,
        _the_compactor_dies_when_the_row_is_there,
        {"snapshot_every": 3},
    ),
    Mutation(
        "row-version-unchecked",
        "a compactor commits although another has committed since it read, and none looks whether one has",
        TABLES,
        checkers.tables_reach_the_end_of_the_log,
        _stale_compactors_commit,
        _a_compactor_sleeps_before_its_commit,
        {"store": SlowCommits},
    ),
    Mutation(
        "seq-lowered",
        "a commit lowers the `seq` of a run (planted with the one above, without which none comes to it)",
        TABLES,
        checkers.rows_say_what_the_log_says,
        _stale_compactors_lower_seqs,
        _a_compactor_sleeps_before_its_commit,
        {"store": SlowCommits},
    ),
    Mutation(
        "void-records-spent",
        "the usage of void completions is counted",
        TABLES,
        checkers.snapshots_are_the_fold_of_the_log,
        _void_records_are_spent,
        _a_zombies_completion_lands_late,
    ),
)
