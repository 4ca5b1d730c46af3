"""Cases of docs/cases.md: a poison run in every partition."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.broker import Stored
from runfold.adapters.memory.log import MemoryLog
from runfold.codec.log import decode
from runfold.core.events import Interrupted, ModelResponded
from runfold.core.partitioning import partition_of
from runfold.core.state import Status
from runfold.ports.log import OnAck
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import Cluster, ExecutorNode
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.cases.dying import kill_myself

PARTITIONS = 4
UNKNOWN_SCHEMA = b"\xc3\x01" + bytes(8) + b"?"


def _runs(kind: str, count: int) -> list[str]:
    """Names of runs, ``count`` for each partition."""
    found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    number = 0
    while any(len(names) < count for names in found.values()):
        name = f"{kind}-{number}"
        names = found[partition_of(name, PARTITIONS)]
        if len(names) < count:
            names.append(name)
        number += 1
    return [name for names in found.values() for name in names]


@tool(recovery=Recovery.KEYED)
async def work(ctx: ToolContext[None]) -> str:
    """Work."""
    await asyncio.sleep(0.5)
    return ctx.idempotency_key


def _good() -> Agent:
    return Agent("good", model=ScriptedModel([("work", {}), ("work", {}), "fine"]), instructions="", tools=[work])


def _explode(_: object) -> Any:
    raise ValueError("broken")


async def _assert_neighbours_move(cluster: Cluster, runs: list[str]) -> None:
    for run_id in runs:
        assert (await cluster.ended(run_id)).ended is Status.COMPLETED
    # The compactor moves too: it holds the end of each of them.
    await cluster.until(lambda: all(cluster.database.runs[run_id].status is Status.COMPLETED for run_id in runs))


@pytest.mark.parametrize("poison", ["planner", "first_message", "model"])
def test_one_poison_run_in_every_partition(poison: str) -> None:
    """The author's code or the model raises: every poison run waits with its error, every neighbour completes."""
    broken: dict[str, Any] = {} if poison == "model" else {poison: _explode}
    script: list[Any] = [RuntimeError("no model")] if poison == "model" else ["x"]
    bad = Agent("bad", model=ScriptedModel(script), instructions="", **broken)

    async def main() -> None:
        poisoned, neighbours = _runs("poison", 1), _runs("good", 3)
        async with Cluster.running(partitions=PARTITIONS) as cluster:
            await cluster.start_executor(App([bad, _good()]))
            for run_id in poisoned:
                await cluster.start(run_id, "bad")
            for run_id in neighbours:
                await cluster.start(run_id, "good")
            await _assert_neighbours_move(cluster, neighbours)
            for run_id in poisoned:
                await cluster.waiting(run_id, "error")

    run_virtual(main())


def test_a_run_that_kills_its_process_in_every_partition() -> None:
    """After three crashes it waits with an error; its neighbours, in flight whenever it killed, all complete."""
    deaths = 0
    executors: list[ExecutorNode] = []

    @tool(recovery=Recovery.KEYED)
    async def die() -> str:
        """Die."""
        nonlocal deaths
        deaths += 1
        kill_myself(executors[-1])
        await asyncio.sleep(0)
        raise AssertionError("a dead process runs nothing")

    async def main() -> None:
        bad = Agent("bad", model=ScriptedModel([("die", {}), "x"]), instructions="", tools=[die])
        poisoned, neighbours = _runs("poison", 1), _runs("good", 3)
        early, late = neighbours[::2], neighbours[1::2]
        async with Cluster.running(partitions=PARTITIONS) as cluster:
            for run_id in poisoned:
                await cluster.start(run_id, "bad")
            for run_id in early:
                await cluster.start(run_id, "good")
            died = -1
            while died < deaths:
                died = deaths
                executors.append(await cluster.start_executor(App([bad, _good()])))
                await asyncio.sleep(30)
            assert 3 <= deaths <= 3 * PARTITIONS
            for run_id in poisoned:
                await cluster.waiting(run_id, "error")
            for run_id in late:
                await cluster.start(run_id, "good")
            await _assert_neighbours_move(cluster, late)
            await _assert_neighbours_move(cluster, early)
            assert not any(isinstance(event, Interrupted) for run_id in neighbours for event in cluster.events(run_id))

    run_virtual(main())


class _NewerLog(FaultyLog):
    """The log of a newer release, which records a poison run's completion in a schema that this one does not know."""

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        if (record.key or b"").startswith(b"poison") and isinstance(decode(record.value or b""), ModelResponded):
            record = replace(record, value=UNKNOWN_SCHEMA)
            MemoryLog._land(self, partition, record, on_ack)  # past the faults, which read the body
            return
        super()._land(partition, record, on_ack)


def test_a_record_that_cannot_be_read_in_every_partition() -> None:
    """A valid event that this release does not know parks its run, for executor and compactor, and nothing else."""

    async def main() -> None:
        poisoned, neighbours = _runs("poison", 1), _runs("good", 3)
        async with Cluster.running(partitions=PARTITIONS) as cluster:
            newer = await cluster.start_executor(App([_good()]), "newer", _NewerLog(cluster.broker))
            for run_id in (*poisoned, *neighbours):
                await cluster.start(run_id, "good")
            await cluster.until(lambda: sum(r.parked is not None for r in cluster.database.runs.values()) == PARTITIONS)
            newer.kill()
            older = await cluster.start_executor(App([_good()]), "older")
            rows = cluster.database.runs
            await cluster.until(lambda: all(run_id in rows for run_id in neighbours))
            await cluster.until(lambda: all(rows[run_id].status is Status.COMPLETED for run_id in neighbours))
            await cluster.until(lambda: older.executor.ready)
            assert {run_id for run_id in rows if rows[run_id].parked is not None} == set(poisoned)
            assert set(older.executor.parked) == set(poisoned)

    run_virtual(main())
