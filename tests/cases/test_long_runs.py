"""Cases of docs/cases.md: a run of 10,000 steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic_ai.messages import ModelMessage, ModelResponse

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.adapters.postgres import migrate, open_store
from runfold.core.state import Status
from runfold.ports.store import Commit, PartitionRow
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual

STEPS = 10_000
MARKS = (1000, 5000, STEPS)
STEPS_OF_A_TURN = 50
SNAPSHOT_EVERY = 100


@dataclass(slots=True)
class Long:
    """What became of the run.

    Attributes:
        commits: All that its compactor has written.
        log: Bytes of the log's values, in the order of the records.
    """

    commits: list[Commit]
    log: list[int]


class _KeepingStore(MemoryStore):
    """Keeps what was committed."""

    def __init__(self, database: MemoryDatabase, commits: list[Commit]) -> None:
        super().__init__(database)
        self._commits = commits

    async def commit(self, commit: Commit) -> PartitionRow:
        """See ``MemoryStore``."""
        row = await super().commit(commit)
        self._commits.append(commit)
        return row


class _TerseModel(ScriptedModel):
    """Answers without pydantic-ai's preparations, which look at the whole conversation each time: not ours to weigh."""

    def prepare_messages(self, messages: list[ModelMessage], *_: Any, **__: Any) -> list[ModelMessage]:
        """Leave them as they are."""
        return messages

    async def request(self, messages: list[ModelMessage], *_: Any, **__: Any) -> ModelResponse:
        """Answer."""
        return await self._answer(messages, None)  # type: ignore[arg-type]  # which it does not look at


def _app() -> App:
    @tool(recovery=Recovery.RERUN)
    async def work(ctx: ToolContext[None], text: str) -> str:
        """Work."""
        await asyncio.sleep(0.2)  # the compactor keeps pace
        return f"{text} of {ctx.idempotency_key}"

    calls = [("work", {"text": f"call {number:02}"}) for number in range(STEPS_OF_A_TURN - 1)]
    script: list[Any] = [calls] * (STEPS // STEPS_OF_A_TURN)
    return App([Agent("long", model=_TerseModel([*script, "done"]), instructions="", tools=[work])])


@pytest.fixture(scope="module")
def long() -> Long:
    """Drive one run through 10,000 steps, a model call and 49 tools in turns."""
    commits: list[Commit] = []

    async def main() -> Long:
        def store(database: MemoryDatabase) -> MemoryStore:
            return _KeepingStore(database, commits)

        async with Cluster.running(partitions=1, snapshot_every=SNAPSHOT_EVERY, store=store) as cluster:
            await cluster.start_executor(_app())
            await cluster.start("r1", "long")
            runs = cluster.database.runs
            await cluster.until(lambda: "r1" in runs and runs["r1"].status is Status.COMPLETED, 3600)
            assert runs["r1"].step == STEPS + 1
            _, end = cluster.broker.bounds(TOPICS.log, 0)
            return Long(commits, [len(record.value or b"") for record in cluster.broker.slice(TOPICS.log, 0, 0, end)])

    return run_virtual(main(), 7200)


def _weights(commits: Iterable[Commit]) -> tuple[dict[int, int], dict[int, int]]:
    """Step -> bytes that the snapshot at it has added; step -> bytes of all messages stored until then."""
    added, stored, total = {}, {}, 0
    for commit in commits:
        new = sum(len(chunk.data) for chunk in commit.chunks)
        total += new
        if commit.snapshots:
            step = max(run.step for run in commit.runs)
            added[step] = new + sum(len(snapshot.state) for snapshot in commit.snapshots)
            stored[step] = total
    return added, stored


def _at(weights: dict[int, int], mark: int) -> float:
    """The mean of the ten snapshots before a step."""
    near = sorted(step for step in weights if step <= mark)[-10:]
    return sum(weights[step] for step in near) / len(near)


def test_a_snapshots_cost_does_not_grow(long: Long) -> None:
    """What one snapshot writes, after 5,000 and 10,000 steps, is what it wrote after 1,000, within a tenth."""
    added, _ = _weights(long.commits)
    assert len(added) > STEPS / SNAPSHOT_EVERY
    first, middle, last = (_at(added, mark) for mark in MARKS)
    assert middle < 1.1 * first
    assert last < 1.1 * first
    assert max(added.values()) < 3 * first


def test_stored_bytes_grow_linearly(long: Long) -> None:
    """Ten times the steps are ten times the bytes, in the log and in the messages behind the snapshots."""
    _, stored = _weights(long.commits)
    early, late = (max(step for step in stored if step <= mark) for mark in (MARKS[0], MARKS[-1]))
    assert stored[late] / stored[early] == pytest.approx(late / early, rel=0.1)
    events_of_a_step = len(long.log) / STEPS
    upto = [sum(long.log[: int(mark * events_of_a_step)]) for mark in MARKS]
    assert upto[2] / upto[0] == pytest.approx(10, rel=0.1)
    assert upto[1] / upto[0] == pytest.approx(5, rel=0.1)


@pytest.mark.integration
async def test_and_so_it_is_in_postgres(long: Long, postgres_dsn: str, postgres_schema: str) -> None:
    """The same commits on real tables: two snapshots are kept, every message is there once, nothing else has grown."""
    await migrate(postgres_dsn, postgres_schema)
    store = await open_store(postgres_dsn, postgres_schema)
    sizes: dict[int, dict[str, int]] = {}
    try:
        for commit in long.commits:
            await store.commit(commit)
            step = max((run.step for run in commit.runs), default=0)
            for mark in MARKS:
                if step >= mark and mark not in sizes:
                    sizes[mark] = _table_bytes(postgres_dsn, postgres_schema)
    finally:
        await store.close()
    first, last = sizes[MARKS[0]], sizes[MARKS[-1]]
    assert last["message_chunks"] / first["message_chunks"] == pytest.approx(STEPS / MARKS[0], rel=0.15)
    for table in ("snapshots", "runs", "open_calls", "waits", "partitions"):
        assert last[table] < 1.1 * first[table] + 200, table


def _table_bytes(dsn: str, schema: str) -> dict[str, int]:
    """Bytes of the rows of each table that holds anything of runs."""
    tables = ("snapshots", "message_chunks", "runs", "open_calls", "waits", "partitions")
    question = sql.SQL("select coalesce(sum(octet_length(row::text)), 0)::bigint from {} row")
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = {
            table: connection.execute(question.format(sql.Identifier(schema, table))).fetchone() for table in tables
        }
    return {table: 0 if row is None else int(row[0]) for table, row in found.items()}
