"""Postgres restored from an older backup: waited for, and never believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import structlog
from structlog.typing import EventDict

from runfold import ABSENT, Recovery, ToolContext
from runfold.adapters.memory.store import MemoryStore
from runfold.core.events import Settlement
from runfold.core.partitioning import partition_of
from runfold.core.state import Status
from runfold.ports.store import Commit, PartitionRow
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import claims, last_settled, one_tool_app, settled
from tests.runtime.book import KeyedBook
from tests.runtime.disasters import (
    backup,
    comparable,
    empty,
    gated_app,
    notification_ids,
    restore,
    wait_out_of_memory,
)


class HeldStore(MemoryStore):
    """Commits wait for ``may_commit``."""

    may_commit: ClassVar[asyncio.Event]

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit when it is allowed."""
        await HeldStore.may_commit.wait()
        return await super().commit(commit)


@pytest.fixture
def said() -> Iterator[list[EventDict]]:
    """What is logged."""
    with structlog.testing.capture_logs() as lines:
        yield lines


def told(said: list[EventDict], event: str) -> list[EventDict]:
    """Lines about one thing."""
    return [line for line in said if line["event"] == event]


@pytest.mark.parametrize("lost", ["all", "the row", "what came after the backup", "all but newer runs"])
def test_the_approval_of_a_run_that_a_restored_database_does_not_know_is_not_lost(
    lost: str, said: list[EventDict]
) -> None:
    """It left memory behind a snapshot: "no such run" of a database that lost it is not believed; it waits."""
    book = KeyedBook()

    async def main() -> None:
        HeldStore.may_commit = asyncio.Event()
        HeldStore.may_commit.set()
        async with Cluster.running(partitions=1, store=HeldStore) as cluster:
            process = await cluster.start_executor(gated_app(book))
            await cluster.start("r0", "a")
            await wait_out_of_memory(cluster, process, "r0")
            older = backup(cluster)
            await cluster.start("r1", "a")
            await wait_out_of_memory(cluster, process, "r1")
            claimed = claims(cluster)
            HeldStore.may_commit.clear()
            match lost:
                case "all":
                    empty(cluster)
                case "the row":
                    cluster.database.partitions.clear()
                case "all but newer runs":
                    cluster.database.partitions.update(older["partitions"])
                case _:
                    restore(cluster, older)
            offset = await cluster.approve("r1", 2)
            await asyncio.sleep(60)
            assert last_settled(cluster, "r1", offset, TOPICS.approvals) is None
            assert len(told(said, "postgres_behind")) > 3
            HeldStore.may_commit.set()
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            await cluster.approve("r0", 2)
            await cluster.ended("r0")
            assert claims(cluster) == claimed

    run_virtual(main())
    assert book.effects == {"r1:3": 1, "r0:3": 1}


def test_a_run_is_not_loaded_from_a_restored_older_snapshot(said: list[EventDict]) -> None:
    """Its first call was performed after the backup: from the older state it would be performed again."""
    book = KeyedBook()

    async def act(ctx: ToolContext[None]) -> Any:
        return book.apply(ctx.idempotency_key, "done")

    model = ScriptedModel([("act", {}), ("act", {}), "end"])
    app = one_tool_app(Recovery.RERUN, act, needs_approval=True, agent={"model": model})

    async def main() -> None:
        HeldStore.may_commit = asyncio.Event()
        HeldStore.may_commit.set()
        async with Cluster.running(partitions=1, store=HeldStore) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await wait_out_of_memory(cluster, process, "r1")
            older = backup(cluster)
            await cluster.approve("r1", 2)
            await cluster.until(lambda: (state := cluster.state("r1")) is not None and "r1:5" in state.waits)
            await wait_out_of_memory(cluster, process, "r1")
            HeldStore.may_commit.clear()
            restore(cluster, older)
            await cluster.approve("r1", 5)
            await asyncio.sleep(30)
            assert told(said, "postgres_behind")
            HeldStore.may_commit.set()
            await cluster.ended("r1")

    run_virtual(main())
    assert book.effects == {"r1:3": 1, "r1:6": 1}


def test_a_restored_database_holds_up_its_own_partition_only(said: list[EventDict]) -> None:
    """Loads of other partitions are answered meanwhile."""

    async def main() -> None:
        async with Cluster.running(partitions=2, compacting=False) as cluster:
            compactor = cluster.start_compactor()
            process = await cluster.start_executor(gated_app())
            ids = {0: "", 1: ""}
            for number in range(20):
                ids[partition_of(f"r{number}", 2)] = f"r{number}"
            for run_id in ids.values():
                await cluster.start(run_id, "a")
            await wait_out_of_memory(cluster, process, *ids.values())
            compactor.kill()
            row = cluster.database.partitions[0]
            cluster.database.partitions[0] = replace(row, applied=row.applied - 1)
            await cluster.approve(ids[0], 2)
            await asyncio.sleep(5)
            await cluster.approve(ids[1], 2)
            await cluster.ended(ids[1])
            assert (state := cluster.state(ids[0])) is not None
            assert state.ended is None
            # A new owner takes over from the older row: there is nothing that it relies on.
            process.kill()
            await cluster.start_executor(gated_app())
            await cluster.ended(ids[0])

    run_virtual(main())
    assert {line["partition"] for line in told(said, "postgres_behind")} == {0}


def test_a_verdict_about_a_call_of_a_restored_database_changes_nothing() -> None:
    """The backup knows the call as open, its owner as gone: the reconciler looks it up, and the owner judges."""
    book, asked, may_return = KeyedBook(), [], asyncio.Event()

    async def act(ctx: ToolContext[None]) -> Any:
        await may_return.wait()
        return book.apply(ctx.idempotency_key, "done")

    async def lookup(ctx: ToolContext[None]) -> Any:
        asked.append(ctx.idempotency_key)
        return ABSENT if len(asked) == 1 else "found it"

    app = one_tool_app(Recovery.LOOKUP, act, lookup=lookup, timeout=5.0)

    async def main() -> None:
        HeldStore.may_commit = asyncio.Event()
        HeldStore.may_commit.set()
        async with Cluster.running(partitions=1, store=HeldStore) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: cluster.database.open_calls)
            older = backup(cluster)
            may_return.set()
            await cluster.ended("r1")
            await cluster.until(lambda: process.executor.runs_in_memory == 0)
            events = len(cluster.events("r1"))
            HeldStore.may_commit.clear()
            restore(cluster, older)
            cluster.start_reconciler(app)
            await cluster.until(lambda: cluster.broker.bounds(TOPICS.control, 0)[1] > 0)
            await asyncio.sleep(20)
            HeldStore.may_commit.set()
            end = cluster.broker.bounds(TOPICS.control, 0)[1]
            for offset in range(end):
                assert (await settled(cluster, "r1", offset, TOPICS.control)).outcome is Settlement.STALE
            assert len(cluster.events("r1")) == events
            await cluster.until(lambda: not cluster.database.open_calls)

    run_virtual(main())
    assert asked
    assert book.effects == {"r1:2": 1}


def test_a_database_that_is_about_another_log_is_not_believed(said: list[EventDict]) -> None:
    """Restored from the backup of another installation: the input waits, and nobody is told that there is no run."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            cluster.start_compactor()
            process = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await wait_out_of_memory(cluster, process, "r1")
            row = cluster.database.partitions[0]
            cluster.database.partitions[0] = replace(row, cluster_id="elsewhere", version=row.version + 5)
            offset = await cluster.approve("r1", 2)
            await cluster.until(lambda: told(said, "postgres_behind"))
            assert "elsewhere" in told(said, "postgres_behind")[0]["error"]
            assert last_settled(cluster, "r1", offset, TOPICS.approvals) is None
            cluster.database.partitions[0] = row
            await cluster.ended("r1")

    run_virtual(main())


def test_an_unknown_run_is_still_refused_at_once() -> None:
    """Where the row has not gone back, "no such run" is believed."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await wait_out_of_memory(cluster, process, "r1")
            offset = await cluster.approve("nobody", 2)
            async with asyncio.timeout(2):
                assert (await settled(cluster, "nobody", offset, TOPICS.approvals)).outcome is Settlement.DEAD

    run_virtual(main())


def test_the_folding_of_a_restored_database_ends_where_it_was() -> None:
    """Every table is what it was before, notifications are repeated with the ids they had."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(gated_app())
            await cluster.start("r0", "a")
            await wait_out_of_memory(cluster, process, "r0")
            older = backup(cluster)
            for number in range(1, 6):
                await cluster.start(f"r{number}", "a")
            await cluster.approve("r1", 2)
            await cluster.ended("r1")
            await wait_out_of_memory(cluster, process, "r2", "r3", "r4", "r5")
            end = cluster.database.partitions[0].applied
            before = comparable(cluster)
            notified = notification_ids(cluster)
            restore(cluster, older)
            await cluster.start("r6", "a")
            await cluster.until(lambda: cluster.database.partitions[0].applied > end)
            await wait_out_of_memory(cluster, process, "r6")
            after = comparable(cluster)
            assert {key: rows for key, rows in after.items() if "r6" not in key} == before
            again = notification_ids(cluster)[len(notified) :]
            assert set(again) - {n for n in again if "r6" in n} <= set(notified)
            assert len(again) > 1

    run_virtual(main())
