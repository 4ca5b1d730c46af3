"""Databases restored from backups, logs and topics that are not what they were: refused or repaired, never guessed."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar

import pytest
import structlog
from structlog.typing import EventDict

from runfold import ABSENT, Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.broker import Stored
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.codec import inputs as codec_inputs
from runfold.codec.snapshots import decode_chunk
from runfold.core.events import Settlement
from runfold.core.partitioning import partition_of
from runfold.core.payload import Inline
from runfold.core.state import Status
from runfold.ports.log import AppendFailed, LogUnrecoverable, OnAck
from runfold.ports.store import Commit, PartitionRow
from runfold.runtime import rebuilding
from runfold.runtime.verifying import verify
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import claims, everything, last_settled, model_app, one_tool_app, settled
from tests.runtime.book import KeyedBook

_TABLES = [field.name for field in fields(MemoryDatabase) if field.name not in {"clock", "available"}]


class HeldStore(MemoryStore):
    """Commits wait for ``may_commit``."""

    may_commit: ClassVar[asyncio.Event]

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit when it is allowed."""
        await HeldStore.may_commit.wait()
        return await super().commit(commit)


def backup(cluster: Cluster) -> dict[str, Any]:
    """Copy every table."""
    return {name: copy.deepcopy(getattr(cluster.database, name)) for name in _TABLES}


def restore(cluster: Cluster, tables: dict[str, Any]) -> None:
    """Put tables back, as pg_restore does, under running services."""
    for name, rows in tables.items():
        setattr(cluster.database, name, copy.deepcopy(rows))


def empty(cluster: Cluster) -> None:
    """Lose every row."""
    for name in _TABLES:
        getattr(cluster.database, name).clear()


def gated_app(book: KeyedBook | None = None) -> App:
    """An agent whose only call needs an approval."""

    async def act(ctx: ToolContext[None]) -> Any:
        return "done" if book is None else book.apply(ctx.idempotency_key, "done")

    return one_tool_app(Recovery.KEYED, act, needs_approval=True)


@pytest.fixture
def said() -> Iterator[list[EventDict]]:
    """What is logged."""
    with structlog.testing.capture_logs() as lines:
        yield lines


def told(said: list[EventDict], event: str) -> list[EventDict]:
    """Lines about one thing."""
    return [line for line in said if line["event"] == event]


async def wait_out_of_memory(cluster: Cluster, process: ExecutorNode, *run_ids: str) -> None:
    """Wait until runs wait for their approval, as rows only."""
    for run_id in run_ids:
        await cluster.waiting(run_id, "awaiting_approval")
    await cluster.until(lambda: process.executor.runs_in_memory == 0)


# --- Postgres restored from an older backup ---------------------------------------------------------------------


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


def comparable(cluster: Cluster) -> dict[str, Any]:
    """Everything of every run, by its id and table: rows, the newest snapshot, the transcript.

    Where older snapshots lie and how the transcript is cut depends on how many records came together.
    """
    database = cluster.database
    found: dict[str, Any] = {f"runs {run_id}": row for run_id, row in database.runs.items()}
    found |= {f"snapshots {run_id}": rows[max(rows)] for run_id, rows in database.snapshots.items() if rows}
    found |= {f"waits {wait_id}": replace(row, opened_at=0) for wait_id, row in database.waits.items()}
    for run_id, chunks in database.chunks.items():
        found[f"chunks {run_id}"] = [entry for index in sorted(chunks) for entry in decode_chunk(chunks[index])]
    return found


def notification_ids(cluster: Cluster) -> list[str]:
    """Ids of everything that was told to the outside."""
    begin, end = cluster.broker.bounds(TOPICS.notifications, 0)
    return [
        json.loads(record.value or b"")["id"] for record in cluster.broker.slice(TOPICS.notifications, 0, begin, end)
    ]


# --- the object store -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed_by", ["a tool", "the model"])
@pytest.mark.parametrize("recovery", [Recovery.RERUN, Recovery.KEYED, Recovery.MANUAL])
def test_a_missing_object_holds_its_run_and_its_return_lifts_it(needed_by: str, recovery: Recovery) -> None:
    """It was certainly not performed: it is not in doubt, not failed, and not repeated; a neighbour goes on."""
    book = KeyedBook()

    async def main() -> None:
        model = ScriptedModel([("act", {"text": "x" * 2000}), "end"])

        @tool(recovery=recovery, needs_approval=True)
        async def act(ctx: ToolContext[None], text: str) -> Any:
            """Act."""
            return book.apply(ctx.idempotency_key, len(text))

        neighbour = Agent("b", model=ScriptedModel(["end"]), instructions="")
        app = App([Agent("a", model=model, instructions="", tools=[act]), neighbour])
        async with Cluster.running(partitions=1, inline_limit=1000) as cluster:
            process = await cluster.start_executor(app)
            await cluster.start("r1", "a", "y" * 2000)
            await wait_out_of_memory(cluster, process, "r1")
            blobs = cluster.blobs.stored
            wanted = b"x" * 100 if needed_by == "a tool" else b"y" * 100
            lost = {name: blobs.pop(name) for name, data in list(blobs.items()) if wanted in data}
            assert lost
            await cluster.approve("r1", 2)
            state = await cluster.waiting("r1", "error")
            detail = state.operational_wait()
            assert detail is not None
            assert isinstance(detail.detail, Inline)
            assert any(name.encode() in detail.detail.data for name in lost)
            assert b"runfold resume r1 --by NAME" in detail.detail.data
            await cluster.start("near", "b", "z" * 2000)
            await cluster.ended("near")
            blobs.update(lost)
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())
    assert book.effects == {"r1:3": 1}


# --- the log --------------------------------------------------------------------------------------------------------


async def refused(cluster: Cluster, app: App) -> str:
    """Start an executor that must end with an error; gives what it says."""
    return await told_at_its_end(cluster, await cluster.start_executor(app))


async def told_at_its_end(cluster: Cluster, process: ExecutorNode) -> str:
    """Wait for a process that refuses to go on; gives what it says."""
    with pytest.raises(ExceptionGroup) as caught:
        await process.task
    cluster.nodes.remove(process)
    process.kill()
    leaves = caught.value.split(LogUnrecoverable)[0]
    assert leaves is not None
    error: BaseException = leaves
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def a_few_runs(cluster: Cluster, count: int) -> None:
    """Let runs complete, and be folded."""
    process = await cluster.start_executor(model_app("done"))
    for number in range(count):
        await cluster.start(f"r{number}", "a")
    for number in range(count):
        await cluster.ended(f"r{number}")
    await cluster.until(lambda: applied(cluster) == cluster.broker.bounds(TOPICS.log, 0)[1])
    await process.stop()


def applied(cluster: Cluster) -> int:
    """How far partition 0 is folded, as Postgres knows."""
    row = cluster.database.partitions.get(0)
    return 0 if row is None else row.applied


def test_a_truncated_log_is_refused_however_often_an_executor_is_started_again() -> None:
    """Each start refuses before it claims: claims would make the log as long as it was, and the loss invisible."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            cluster.broker.truncate(TOPICS.log, 0, end - 3)
            for _ in range(5):
                message = await refused(cluster, model_app("done"))
                assert f"ends at {end - 3}" in message
                assert "r2" in message
                assert "runfold rebuild --partition 0 --accept-loss" in message
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == end - 3

    run_virtual(main())


def test_a_log_that_was_truncated_and_has_grown_again_is_refused() -> None:
    """As long as before or longer: the record that was applied last is not the one that stands there."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            spare = cluster.broker.slice(TOPICS.log, 0, 0, 5)
            cluster.broker.truncate(TOPICS.log, 0, end - 3)
            for record in spare:
                cluster.broker.append(TOPICS.log, 0, record.key, record.value, record.headers)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] > end
            assert "has grown again" in await refused(cluster, model_app("done"))

    run_virtual(main())


def test_a_log_truncated_under_an_idle_owner_is_noticed() -> None:
    """It appends nothing, so no acknowledgement tells; it looks every few seconds."""

    async def main() -> None:
        async with Cluster.running(partitions=1, compacting=False) as cluster:
            process = await cluster.start_executor(model_app("done"))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            cluster.broker.truncate(TOPICS.log, 0, cluster.broker.bounds(TOPICS.log, 0)[1] - 1)
            async with asyncio.timeout(20):
                assert "was truncated: it ends at" in await told_at_its_end(cluster, process)

    run_virtual(main())


@pytest.mark.parametrize("topic", [TOPICS.log, *TOPICS.inputs])
def test_a_topic_that_was_deleted_and_made_again_is_refused(topic: str) -> None:
    """The log by its id; an input topic too: its positions would skip what is new, or read again what was settled."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cluster.broker.recreate(topic)
            records = len(everything(cluster)) if topic != TOPICS.log else 0
            for number in range(50):
                value = codec_inputs.encode_start(f"n{number}", "a", "go")
                cluster.broker.append(topic, 0, f"n{number}".encode(), value)
            message = await refused(cluster, model_app("done"))
            assert "another" in message
            assert topic in message or topic == TOPICS.log
            assert topic == TOPICS.log or len(everything(cluster)) == records

    run_virtual(main())


# --- verify and rebuild -------------------------------------------------------------------------------------------


def world_of(cluster: Cluster) -> rebuilding.World:
    """What `runfold rebuild` works on."""
    return rebuilding.World(
        log=MemoryLog(cluster.broker),
        inputs=MemoryInputs(cluster.broker),
        store=MemoryStore(cluster.database),
        topics=TOPICS,
        partitions=cluster.partitions,
        publisher=MemoryPublisher(cluster.broker),
        clock=LoopClock(),
        chance=SeededChance(1),
    )


async def rebuild(cluster: Cluster, *, accept_loss: bool = False) -> rebuilding.Plan:
    """Run `runfold rebuild` on partition 0."""
    world = world_of(cluster)
    plan = await rebuilding.examine(world, 0, accept_loss=accept_loss)
    await rebuilding.carry_out(world, plan)
    return plan


async def verified(cluster: Cluster, run_id: str | None = None) -> list[str]:
    """Run `runfold verify` on partition 0; gives the differences."""
    log, store = MemoryLog(cluster.broker), MemoryStore(cluster.database)
    return (await verify(0, log, store, lambda *_: None, run_id)).differences


async def folded(cluster: Cluster) -> None:
    """Wait until the compactor has folded everything."""
    await cluster.until(lambda: applied(cluster) == cluster.broker.bounds(TOPICS.log, 0)[1])


def test_verify_finds_what_differs_and_rebuild_mends_it() -> None:
    """Each kind of damage in the tables is named with its run; after a rebuild every table is as before."""

    async def main() -> None:
        async with Cluster.running(partitions=1, snapshot_every=3) as cluster:
            process = await cluster.start_executor(gated_app())
            for number in range(3):
                await cluster.start(f"r{number}", "a")
            await wait_out_of_memory(cluster, process, "r0", "r1", "r2")
            await cluster.approve("r0", 2)
            await cluster.ended("r0")
            await folded(cluster)
            before = comparable(cluster)
            assert await verified(cluster) == []
            database = cluster.database
            database.runs["r0"] = replace(database.runs["r0"], step=99)
            del database.runs["r1"]
            del database.waits["r2:2"]
            newest = max(database.snapshots["r2"])
            row = database.snapshots["r2"][newest]
            database.snapshots["r2"][newest] = replace(row, state=row.state[:-1] + b"!")
            database.chunks["r0"].clear()
            found = "\n".join(await verified(cluster))
            assert "run r0: its step is 99" in found
            assert "run r1: is in the log, and not in Postgres" in found
            assert "run r2: lacks its wait r2:2" in found
            assert "the snapshot of run 'r2'" in found
            assert "the snapshot of run 'r0'" in found
            assert all("r2" in line for line in await verified(cluster, "r2"))
            await rebuild(cluster)
            await cluster.until(lambda: applied(cluster) == 0)
            await folded(cluster)
            assert comparable(cluster) == before
            assert await verified(cluster) == []
            await cluster.approve("r1", 2)
            await cluster.ended("r1")

    run_virtual(main())


def held(cluster: Cluster, *run_ids: str) -> bool:
    """Whether all of these wait with an error."""
    states = [cluster.state(run_id) for run_id in run_ids]
    return all(state is not None and state.operational_wait() is not None for state in states)


@pytest.mark.parametrize("how", ["truncated", "recreated"])
def test_accepting_the_loss_of_records_repeats_no_effect(how: str) -> None:
    """What may have gone on is held; what nobody knows of is neither done again nor lost in silence."""
    book = KeyedBook()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(gated_app(book))
            await cluster.start("ended", "a")
            await cluster.approve("ended", 2)
            await cluster.waiting("ended", "awaiting_approval")
            await cluster.approve("ended", 2)
            await cluster.ended("ended")
            await cluster.start("waits", "a")
            await wait_out_of_memory(cluster, process, "waits")
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            await cluster.start("late", "a")
            await cluster.waiting("late", "awaiting_approval")
            await cluster.approve("late", 2)
            await cluster.ended("late")
            await folded(cluster)
            effects = dict(book.effects)
            assert effects == {"ended:3": 1, "late:3": 1}
            await process.stop()
            cluster.nodes[0].kill()
            if how == "truncated":
                cluster.broker.truncate(TOPICS.log, 0, end)
            else:
                cluster.broker.recreate(TOPICS.log)
            await cluster.start("unheard", "a")
            await cluster.approve("waits", 2)
            with pytest.raises(rebuilding.Refused, match="--accept-loss"):
                await rebuild(cluster)
            plan = await rebuild(cluster, accept_loss=True)
            assert plan.live == (["waits"] if how == "truncated" else [])
            cluster.start_compactor()
            await cluster.start_executor(gated_app(book))
            await folded(cluster)
            await asyncio.sleep(30)
            await folded(cluster)
            assert book.effects == effects
            assert held(cluster, "waits", "unheard")
            state = cluster.state("late")
            assert state is not None
            assert state.ended is Status.COMPLETED
            assert await verified(cluster) == []
            # The id is used, whatever else is known of it.
            offset = await cluster.start("ended", "a")
            assert (await settled(cluster, "ended", offset, TOPICS.requests)).outcome is Settlement.DUPLICATE
            # A person knows that nothing was done: it begins.
            await cluster.request("unheard", codec_inputs.encode_resume("unheard", "dana"))
            await cluster.waiting("unheard", "awaiting_approval")
            await cluster.until(lambda: all(position_is_settled(cluster, topic) for topic in TOPICS.inputs))

    run_virtual(main())


def position_is_settled(cluster: Cluster, topic: str) -> bool:
    """Whether every input of a topic has its record."""
    return cluster.database.partitions[0].positions.of(topic).next == cluster.broker.bounds(topic, 0)[1]


def test_the_log_of_another_installation_is_not_mended() -> None:
    """Pointed at somebody else's topics, the command refuses, whatever was accepted: nothing is written."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            cluster.database.runs.clear()
            row = cluster.database.partitions[0]
            cluster.database.partitions[0] = replace(row, cluster_id="ours", version=row.version)
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            with pytest.raises(rebuilding.Refused, match="belongs to another installation"):
                await rebuild(cluster, accept_loss=True)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == end

    run_virtual(main())


def test_a_log_without_its_beginning_is_mended_from_what_postgres_knows() -> None:
    """Runs that began in what was deleted keep their ids and ends; those behind it are not touched."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cut = cluster.broker.bounds(TOPICS.log, 0)[1]
            process = await cluster.start_executor(gated_app())
            await cluster.start("r9", "a")
            await wait_out_of_memory(cluster, process, "r9")
            await folded(cluster)
            await process.stop()
            cluster.nodes[0].kill()
            cluster.broker.delete_before(TOPICS.log, 0, cut)
            row = cluster.database.partitions[0]
            cluster.database.partitions[0] = replace(row, replay_from=cut - 2)
            with pytest.raises(rebuilding.Refused, match="2 of them were deleted"):
                await rebuild(cluster)
            plan = await rebuild(cluster, accept_loss=True)
            assert (plan.live, plan.stray) == ([], ["r0", "r1"])
            cluster.start_compactor()
            await cluster.start_executor(gated_app())
            await folded(cluster)
            assert cluster.database.runs["r0"].status is Status.COMPLETED
            await cluster.approve("r9", 2)
            await cluster.until(lambda: cluster.database.runs["r9"].status is Status.COMPLETED)

    run_virtual(main())


def test_an_input_topic_that_was_made_again_is_mended_without_skipping_an_input() -> None:
    """The offsets that were settled are used up; what stood there already is sent once more, and has one effect."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 3)
            cluster.broker.recreate(TOPICS.requests)
            await cluster.start("early", "a")
            with pytest.raises(rebuilding.Refused, match="deleted and made again"):
                await rebuild(cluster)
            plan = await rebuild(cluster, accept_loss=True)
            assert plan.refill == {TOPICS.requests: 3}
            cluster.nodes[0].kill()
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            await cluster.start("later", "a")
            for run_id in ("early", "later"):
                assert (await cluster.ended(run_id)).ended is Status.COMPLETED

    run_virtual(main())


def test_a_rebuild_that_was_broken_off_holds_up_everybody_until_it_is_done() -> None:
    """Services refuse the partition and say why; running it again finishes it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 2)
            cluster.nodes[0].kill()
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            cluster.broker.truncate(TOPICS.log, 0, end - 2)
            world = world_of(cluster)
            plan = await rebuilding.examine(world, 0, accept_loss=True)
            broken = replace(world, publisher=world.publisher, log=Broken(cluster.broker))
            with pytest.raises(AppendFailed):
                await rebuilding.carry_out(broken, plan)
            assert "is being rebuilt" in await refused(cluster, model_app("done"))
            await rebuild(cluster, accept_loss=True)
            cluster.start_compactor()
            await cluster.start_executor(model_app("done"))
            await cluster.start("r9", "a")
            await cluster.ended("r9")

    run_virtual(main())


class Broken(MemoryLog):
    """A log in which the first record lands, and nothing after it."""

    landed = 0

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        self.landed += 1
        if self.landed == 1:
            super()._land(partition, record, on_ack)
        else:
            self._acknowledge(partition, on_ack, AppendFailed("broken off"))


def test_a_row_older_than_its_runs_settles_no_input_twice() -> None:
    """Only some tables were restored: what newer snapshots cover has settled its inputs all the same."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(gated_app())
            await cluster.start("r1", "a")
            await wait_out_of_memory(cluster, process, "r1")
            row = copy.deepcopy(cluster.database.partitions[0])
            await cluster.approve("r1", 2)
            await cluster.ended("r1")
            await folded(cluster)
            cluster.nodes[0].kill()
            await process.stop()
            cluster.database.partitions[0] = row
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            process = await cluster.start_executor(gated_app())
            await cluster.until(lambda: process.executor.ready)
            await asyncio.sleep(10)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == end + 1

    run_virtual(main())
