"""What somebody knows of a call's outcome is neither thrown away nor overtaken by what says that nothing happened."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from runfold import Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.events import Interrupted, RunCompleted
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import claims, everything, hang, never_asked, one_tool_app, requests, send_verdict


def test_an_outcome_is_not_forgotten_while_its_run_cannot_be_read() -> None:
    """A MANUAL call is not in doubt, and not made again, because its run was parked for an epoch."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        await asyncio.sleep(20.0)
        return "sent"

    async def main() -> None:
        async with Cluster.running(partitions=1, snapshot_every=1, log=FaultyLog) as cluster:
            process = await cluster.start_executor(one_tool_app(Recovery.MANUAL, act, timeout=60.0))
            log = process.log
            assert isinstance(log, FaultyLog)

            async def end_epoch() -> None:
                before = claims(cluster)
                log.fates.append("lost")
                await cluster.request("nobody", codec_inputs.encode_cancel("nobody", "x", "ops"))
                await cluster.until(lambda: claims(cluster) > before and process.executor.ready)

            await cluster.start("r1", "a")
            await cluster.until(lambda: requests(cluster))
            database, end = cluster.database, cluster.broker.bounds(TOPICS.log, 0)[1]
            await cluster.until(lambda: database.partitions and database.partitions[0].replay_from == end)
            cluster.nodes[0].kill()  # the compactor
            # Old segments are trimmed behind the snapshots, whose rows are then damaged for a while.
            cluster.broker.delete_before(TOPICS.log, 0, end - 1)
            good = dict(database.snapshots["r1"])
            for seq, row in good.items():
                database.snapshots["r1"][seq] = replace(row, state=row.state[:-1] + b"!")
            await end_epoch()
            assert process.executor.parked
            database.snapshots["r1"].update(good)
            await end_epoch()
            await cluster.until(lambda: any(isinstance(record, RunCompleted) for record in everything(cluster)))
            assert not any(isinstance(record, Interrupted) for record in everything(cluster))
            assert calls == [1]

    run_virtual(main())


def test_found_passes_a_persons_absent_that_is_held() -> None:
    """As ``orphans`` tells it of a process that was cut off from Kafka: long before the hold is over."""
    calls: list[int] = []

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        return await hang(ctx) if ctx.attempt == 1 else "sent again"

    async def main() -> None:
        app = one_tool_app(Recovery.MANUAL, act, timeout=60.0)
        async with Cluster.running(partitions=1) as cluster:
            first = await cluster.start_executor(app)
            await cluster.start("r1", "a")
            await cluster.until(lambda: calls)
            first.kill()
            second = await cluster.start_executor(app)
            await cluster.waiting("r1", "indeterminate")
            await second.stop()
            third = await cluster.start_executor(app)
            await cluster.until(lambda: third.executor.ready)
            await cluster.request("r1", codec_inputs.encode_resolve("r1", 2, "absent", "ops", attempt=1))
            await asyncio.sleep(1)
            await send_verdict(cluster, "found", result=b'"sent"')
            await cluster.ended("r1")
            assert calls == [1]

    run_virtual(main())


def test_found_passes_a_verdict_that_waits_for_its_turn() -> None:
    """The reconciler asks again after 15 s, and its lookup finds by now what it did not."""

    async def main() -> None:
        app = one_tool_app(Recovery.LOOKUP, hang, lookup=never_asked, timeout=30.0)
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(app)
            for run_id in ("r1", "r2"):
                await cluster.start(run_id, "a")

            async def lose(attempt: int, process: ExecutorNode) -> ExecutorNode:
                await cluster.until(lambda: all(len(requests(cluster, run_id)) == attempt for run_id in ("r1", "r2")))
                await asyncio.sleep(0.5)
                process.kill()
                owner = await cluster.start_executor(app)
                await cluster.until(lambda: owner.executor.ready)
                for run_id in ("r2", "r1"):
                    await send_verdict(cluster, "absent", attempt, run_id=run_id)
                    await asyncio.sleep(0.1)
                return owner

            await lose(2, await lose(1, process))
            await cluster.until(lambda: len(requests(cluster, "r2")) == 3)
            assert len(requests(cluster, "r1")) == 2  # it waits for its turn
            await send_verdict(cluster, "found", 2, result=b'"there"')
            await cluster.until(lambda: len(requests(cluster, "r1")) == 3 or "RunCompleted" in cluster.types("r1"))
            assert len(requests(cluster, "r1")) == 2

    run_virtual(main())
