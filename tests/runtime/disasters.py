"""What the tests of disasters share: backups, runs at rest, and how a process says that it refuses."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from typing import Any

import pytest

from runfold import App, Recovery, ToolContext
from runfold.adapters.memory.store import MemoryDatabase
from runfold.codec.snapshots import decode_chunk
from runfold.ports.log import LogUnrecoverable
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode
from tests.runtime.apps import model_app, one_tool_app
from tests.runtime.book import KeyedBook

_TABLES = [field.name for field in fields(MemoryDatabase) if field.name not in {"clock", "available"}]


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


async def wait_out_of_memory(cluster: Cluster, process: ExecutorNode, *run_ids: str) -> None:
    """Wait until runs wait for their approval, as rows only."""
    for run_id in run_ids:
        await cluster.waiting(run_id, "awaiting_approval")
    await cluster.until(lambda: process.executor.runs_in_memory == 0)


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
    await folded(cluster)
    await process.stop()


def applied(cluster: Cluster) -> int:
    """How far partition 0 is folded, as Postgres knows."""
    row = cluster.database.partitions.get(0)
    return 0 if row is None else row.applied


async def folded(cluster: Cluster) -> None:
    """Wait until the compactor has folded everything."""
    await cluster.until(lambda: applied(cluster) == cluster.broker.bounds(TOPICS.log, 0)[1])


async def at_rest(cluster: Cluster, process: ExecutorNode) -> None:
    """Wait until the compactor has folded everything; then neither it nor the executor runs any more."""
    await folded(cluster)
    await process.stop()
    cluster.nodes[0].kill()
