"""``runfold verify`` finds what differs; ``runfold rebuild`` folds again, or mends a log that lost records."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from dataclasses import replace

import pytest

from runfold import App, Recovery, ToolContext
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.store import MemoryStore
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Settlement, WaitReason
from runfold.core.fence import HEADER, Head, Kind
from runfold.core.state import Status
from runfold.runtime.rebuild.plan import Refused
from runfold.runtime.verifying import verify
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import model_app, one_tool_app, settled
from tests.runtime.book import KeyedBook
from tests.runtime.disasters import (
    a_few_runs,
    applied,
    at_rest,
    comparable,
    folded,
    gated_app,
    wait_out_of_memory,
)
from tests.runtime.rebuild.rebuilds import rebuild, what_holds


async def verified(cluster: Cluster, run_id: str | None = None) -> list[str]:
    """Run `runfold verify` on partition 0; gives the differences."""
    log, store = MemoryLog(cluster.broker), MemoryStore(cluster.database)
    return (await verify(0, log, store, lambda *_: None, run_id)).differences


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
            with pytest.raises(Refused, match="--accept-loss"):
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
            with pytest.raises(Refused, match="belongs to another installation"):
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
            await at_rest(cluster, process)
            cluster.broker.delete_before(TOPICS.log, 0, cut)
            row = cluster.database.partitions[0]
            cluster.database.partitions[0] = replace(row, replay_from=cut - 2)
            with pytest.raises(Refused, match="2 of them were deleted"):
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
            with pytest.raises(Refused, match="deleted and made again"):
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


def manual_app(calls: Counter[str], instructions: str) -> App:
    """An agent whose only call is MANUAL and needs an approval; its version is its instructions."""

    async def act(ctx: ToolContext[None]) -> str:
        calls[ctx.idempotency_key] += 1
        return "sent"

    return one_tool_app(Recovery.MANUAL, act, needs_approval=True, agent={"instructions": instructions})


def test_a_run_that_waited_for_its_version_is_held_since_it_may_have_gone_on() -> None:
    """Lifted, and its MANUAL call made, in records that are lost: the next owner does not lift it again."""
    calls: Counter[str] = Counter()

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            old = await cluster.start_executor(manual_app(calls, "v1"))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "awaiting_approval")
            await old.stop()
            wrong = await cluster.start_executor(manual_app(calls, "v2"))
            await cluster.approve("r1", 2)
            await cluster.waiting("r1", "version_mismatch")
            await folded(cluster)
            await wrong.stop()
            end = cluster.broker.bounds(TOPICS.log, 0)[1]
            right = await cluster.start_executor(manual_app(calls, "v1"))
            await cluster.ended("r1")
            await folded(cluster)
            await right.stop()
            cluster.nodes[0].kill()
            assert calls == {"r1:3": 1}
            cluster.broker.truncate(TOPICS.log, 0, end)
            assert (await rebuild(cluster, accept_loss=True)).live == ["r1"]
            cluster.start_compactor()
            await cluster.start_executor(manual_app(calls, "v1"))
            await folded(cluster)
            await asyncio.sleep(30)
            assert calls == {"r1:3": 1}
            reason, detail = what_holds(cluster, "r1")
            assert reason is WaitReason.ERROR
            assert "the log lost records" in detail
            # A person says so: it goes on.
            await cluster.request("r1", codec_inputs.encode_resume("r1", "dana"))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert calls == {"r1:3": 2}

    run_virtual(main())


def test_a_run_that_cannot_be_read_cannot_be_held_and_nothing_is_mended() -> None:
    """Code that can read it would let it go on: the partition is refused with the run's name, nothing is written."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await a_few_runs(cluster, 1)
            cluster.nodes[0].kill()
            cluster.broker.truncate(TOPICS.log, 0, 2)
            head = Head(Kind.EVENT, 0, 1).encode()
            cluster.broker.append(TOPICS.log, 0, b"r0", b"of a newer release", ((HEADER, head),))
            row = cluster.database.partitions[0]
            with pytest.raises(Refused, match=r"cannot read run r0: .*Deploy the release"):
                await rebuild(cluster, accept_loss=True)
            assert cluster.broker.bounds(TOPICS.log, 0)[1] == 3
            assert cluster.database.partitions[0] == row

    run_virtual(main())


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
