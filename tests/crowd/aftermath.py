"""What is left when all is over: the log, judged by the one rule of validity; the tables; the world's books."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from demo.installation import Installation, Record
from demo.processes import Service, Services
from demo.watching import await_state
from demo.world import World
from runfold.adapters.memory.store import MemoryDatabase, _OpenCall
from runfold.adapters.postgres import open_store
from runfold.adapters.system import SystemClock
from runfold.codec import log as log_codec
from runfold.core.events import (
    ModelCallRequested,
    PartitionClaimed,
    Recovery,
    RunEvent,
    Source,
    ToolCallRequested,
    ToolReturned,
)
from runfold.core.fence import Head
from runfold.core.partitioning import partition_of
from runfold.core.payload import Inline
from runfold.core.state import State
from runfold.ports.store import OpenCallRow, StoredRun
from runfold.testing.simulation.history import PartitionHistory
from tests.crowd import ledger

INPUT_TOPICS = ("requests", "approvals", "control")
_ALL = 1_000_000
_OPEN_CALL = tuple(name for name in OpenCallRow.__dataclass_fields__ if name != "arguments")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a partition; ``at_ms``: when the broker appended it, ``owner``: host name and pid."""

    partition: int
    epoch: int
    at_ms: int
    owner: str

    @property
    def pid(self) -> int:
        """Of the process that claimed."""
        return int(self.owner.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Logged:
    """A valid event; ``at_ms``: when the broker appended it."""

    at_ms: int
    event: RunEvent


@dataclass(slots=True)
class Log:
    """The whole log.

    Attributes:
        partitions: Judged; index = partition.
        events: Run -> its valid events in order.
        claims: In order of their partition and offset.
    """

    partitions: list[PartitionHistory]
    events: dict[str, list[Logged]] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)

    @classmethod
    def read(cls, installation: Installation, partitions: int) -> Self:
        """Read it from its beginning to its present end."""
        log = cls([PartitionHistory(number) for number in range(partitions)])
        for record in installation.records("log"):
            log._take(record)
        return log

    def _take(self, record: Record) -> None:
        history = self.partitions[record.partition]
        body = log_codec.decode(record.value)
        known = len(history.records)
        key = None if record.key is None else record.key.decode()
        history.judge(record.offset, key, Head.decode(dict(record.headers).get("rf")), body)
        if isinstance(body, PartitionClaimed):
            self.claims.append(Claim(record.partition, record.offset, record.at_ms, body.owner))
        elif isinstance(body, RunEvent) and len(history.records) > known:
            self.events.setdefault(body.run_id, []).append(Logged(record.at_ms, body))

    @property
    def void(self) -> int:
        """How many records are void."""
        return sum(history.fence.void for history in self.partitions)

    @property
    def settled(self) -> Counter[tuple[str, int, int]]:
        """(topic, partition, offset) of an input -> how many valid records it left."""
        return Counter(
            (body.cause.topic, history.partition, body.cause.offset)
            for history in self.partitions
            for _, body in history.records
            if body.cause is not None
        )

    def state(self, run_id: str) -> State:
        """Give a run, folded."""
        return self.partitions[partition_of(run_id, len(self.partitions))].states[run_id]

    @property
    def runs_of_several_epochs(self) -> int:
        """How many runs more than one epoch has written."""
        return sum(len({logged.event.epoch for logged in run}) > 1 for run in self.events.values())

    def disturbances(self) -> dict[str, int]:
        """Count what only happens where something was lost: else a test of faults has shown nothing."""
        events = [logged.event for run in self.events.values() for logged in run]
        models = [event for event in events if isinstance(event, ModelCallRequested)]
        calls = [event for event in events if isinstance(event, ToolCallRequested)]
        returned = Counter(event.source for event in events if isinstance(event, ToolReturned))
        return {
            "claims": len(self.claims),
            "void records": self.void,
            "further attempts of model calls": sum(event.attempt > 1 for event in models),
            "further attempts of tools": sum(event.attempt > 1 for event in calls),
            "results found by a lookup": returned[Source.RECONCILED],
            "results told by a person": returned[Source.OPERATOR],
            "runs of several epochs": self.runs_of_several_epochs,
        }


@dataclass(slots=True)
class Aftermath:
    """Everything that the checkers look at.

    Attributes:
        inputs: (topic, partition, offset) of every record of the input topics.
        database: The tables of Postgres, in the form of those in memory; ``stored``: the runs as they are loaded.
        started: Runs that somebody started.
    """

    log: Log
    inputs: list[tuple[str, int, int]]
    database: MemoryDatabase
    stored: dict[str, StoredRun]
    world: World
    started: list[str]

    @classmethod
    def read(cls, installation: Installation, world: World, started: list[str]) -> Self:
        """Read it all; nothing may be running any more."""
        partitions = int(installation.environment["RUNFOLD_PARTITIONS"])
        ledger.enter_into_books(installation, world)
        database, stored = asyncio.run(_tables(installation, partitions, started))
        return cls(Log.read(installation, partitions), inputs_of(installation), database, stored, world, started)

    def requests(self) -> Iterator[tuple[Logged, ToolCallRequested]]:
        """Every valid request of a tool call."""
        for run in self.log.events.values():
            for logged in run:
                if isinstance(logged.event, ToolCallRequested):
                    yield logged, logged.event


def is_settled(installation: Installation) -> bool:
    """Whether every input has left a record in the log; a late duplicate comes after the runs' end."""
    log = Log.read(installation, int(installation.environment["RUNFOLD_PARTITIONS"]))
    return log.settled.keys() >= set(inputs_of(installation))


def is_applied(installation: Installation) -> bool:
    """Whether Postgres has the whole log."""
    log = Log.read(installation, int(installation.environment["RUNFOLD_PARTITIONS"]))
    table = sql.Identifier(installation.schema, "partitions")
    with psycopg.connect(installation.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True) as connection:
        rows = connection.execute(sql.SQL("select partition, applied from {}").format(table)).fetchall()
    return dict(rows) == {history.partition: history.end for history in log.partitions}


def stop_settled(installation: Installation, services: Services, executors: Sequence[Service]) -> None:
    """Stop all services when all is said: every input has its record, and Postgres has the whole log.

    The executors first: whoever takes over from one that stops writes a claim.

    Raises:
        DemoError: It does not come to that in time, or a service ended, or not cleanly.
    """
    await_state(services, "a record in the log for every input", lambda: is_settled(installation) or None)
    for executor in executors:
        services.stop(executor)
    await_state(services, "the whole log in Postgres", lambda: is_applied(installation) or None)
    for service in list(services.running()):
        services.stop(service)


def inputs_of(installation: Installation) -> list[tuple[str, int, int]]:
    """Give the place of every input that there is."""
    return [
        (f"{installation.topics}{topic}", record.partition, record.offset)
        for topic in INPUT_TOPICS
        for record in installation.records(topic)
    ]


async def _tables(
    installation: Installation, partitions: int, runs: list[str]
) -> tuple[MemoryDatabase, dict[str, StoredRun]]:
    dsn = installation.environment["RUNFOLD_POSTGRES_DSN"]
    store = await open_store(dsn, installation.schema)
    database = MemoryDatabase(SystemClock())
    try:
        for number in range(partitions):
            row = await store.partition(number)
            if row is not None:
                database.partitions[number] = row
        database.runs = {row.run_id: row for row in await store.runs(status=None, agent=None, limit=_ALL)}
        database.waits = {row.wait_id: row for row in await store.waits(None)}
        stored = await store.load_runs(runs)
    finally:
        await store.close()
    for call in _open_calls(dsn, installation.schema):
        database.open_calls[call.run_id, call.step] = _OpenCall(call, 0.0)
    return database, stored


def _open_calls(dsn: str, schema: str) -> list[OpenCallRow]:
    """Read what no port gives: calls that are nobody's to reconcile are in the table too."""
    table = sql.Identifier(schema, "open_calls")
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        rows: list[dict[str, Any]] = connection.execute(
            sql.SQL("select {} from {}").format(sql.SQL(", ").join(map(sql.Identifier, _OPEN_CALL)), table)
        ).fetchall()
    return [OpenCallRow(**{**row, "recovery": Recovery(row["recovery"])}, arguments=Inline(b"null")) for row in rows]
