"""An installation of Runfold to be measured, on servers that are shared with other measurements of the same call."""

from __future__ import annotations

import gc
import os
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final, Literal

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]  # re-exported without `as`
from psycopg import sql

from bench.app import TIMES
from bench.costs import Processes
from demo.installation import ROOT, Installation
from demo.processes import Command, Service, Services
from demo.watching import await_state
from devstack import Stack
from devstack.record import Record

Flush = Literal["default", "every"]
FLUSHES: Final[tuple[Flush, ...]] = ("default", "every")
PARTITIONS: Final = 12
EXECUTOR: Final[Command] = "runfold-step-executor"
COMPACTOR: Final[Command] = "runfold-snapshot-compactor"
RECONCILER: Final[Command] = "runfold-reconciler"
PATIENCE_S: Final = 300.0
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class World:
    """What a measurement works with.

    Attributes:
        servers: Pids of the servers that the stack started: none of those that somebody else runs.
    """

    installation: Installation
    services: Services
    partitions: int
    servers: Mapping[str, int]

    @property
    def bootstrap(self) -> str:
        """Where Kafka is."""
        return self.installation.bootstrap

    def topic(self, name: str) -> str:
        """Give the full name of one of its topics."""
        return f"{self.installation.topics}{name}"

    def start_all(self, executors: int = 1) -> dict[str, Service]:
        """Start every service, and return when each is ready and each executor has its share of the partitions."""
        started = {"compactor": self.services.start(COMPACTOR, "compactor")}
        started["reconciler"] = self.services.start(RECONCILER, "reconciler")
        for number in range(executors):
            name = "executor" if number == 0 else f"executor-{number + 1}"
            started[name] = self.services.start(EXECUTOR, name)
        self.services.await_ready(*started.values())
        self.await_shares([service for name, service in started.items() if name.startswith("executor")])
        return started

    def await_shares(self, executors: list[Service]) -> None:
        """Wait until every partition is owned, and each executor owns its share."""
        least = self.partitions // len(executors)

        def ask() -> bool | None:
            owned = [metric(each, "runfold_executor_owned_partitions") for each in executors]
            return True if sum(owned) == self.partitions and min(owned) >= least else None

        await_state(self.services, f"a fair share for each of {len(executors)} executors", ask)

    def processes(self, started: Mapping[str, Service]) -> Processes:
        """Give what costs are counted of: services and servers."""
        return Processes({**{name: service.pid for name, service in started.items()}, **self.servers})

    def connect(self) -> psycopg.Connection[Any]:
        """Open a session in which every statement is a transaction."""
        return psycopg.connect(self.installation.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True)

    def table(self, name: str) -> sql.Identifier:
        """Name a table of the installation for a statement."""
        return sql.Identifier(self.installation.schema, name)

    def producer(self) -> Producer:
        """Give a producer as somebody else would have it, but for waiting: librdkafka's 5 ms are not ours."""
        return Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 0})


def own_stack() -> Stack:
    """Start servers, or take those that the environment names; for the time of a ``with``."""
    return Stack.start(ROOT, services=("kafka", "postgres"))


@contextmanager
def opened(
    stack: Stack,
    *,
    partitions: int = PARTITIONS,
    kafka: str = "",
    times: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Iterator[World]:
    """Make an installation with topics for the bare loop beside it, and take it away at the end.

    Args:
        stack: Its Kafka and its Postgres.
        partitions: Of every topic.
        kafka: Lines of RUNFOLD_KAFKA_CONFIG.
        times: Let the executors write down when each step began.
        extra: Further variables.
    """
    folder = stack.folder / f"bench-{os.urandom(4).hex()}"
    # What measures is what is measured: a checkout that is on the path of this process is on the services' as well.
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    variables = {"PYTHONPATH": path, **(extra or {})}
    if times:
        (folder / "times").mkdir(parents=True)
        variables[TIMES] = str(folder / "times")
    installation = Installation.at(
        stack.environment(), folder, app="bench.app:app", partitions=partitions, kafka=kafka, extra=variables
    )
    installation.runfold("setup")
    try:
        with Services(installation.environment, folder / "logs") as services:
            yield World(installation, services, partitions, _server_pids(stack))
    finally:
        # Of servers of our own nobody misses a group whose member was killed; only others want to know what stays.
        with redirect_stderr(StringIO()) if _server_pids(stack) else nullcontext():
            installation.remove()
            gc.collect()  # its client of Kafka would otherwise complain when the broker is stopped


def _server_pids(stack: Stack) -> dict[str, int]:
    record = Record.load(stack.folder)
    return {} if record is None else {name: process.pid for name, process in record.processes.items() if name != "s3"}


def set_flush(bootstrap: str, topics: list[str], flush: Flush) -> None:
    """Let the broker write every record of some topics to the disk before it acknowledges, or as it does by default."""
    operation = AlterConfigOpType.SET if flush == "every" else AlterConfigOpType.DELETE
    change = ConfigEntry("flush.messages", "1", incremental_operation=operation)
    # librdkafka has a remark about every admin client that is let go, but for the worst of errors.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    wanted = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change]) for topic in topics]
    for altered in admin.incremental_alter_configs(wanted).values():
        altered.result(_ANSWER_S)


def metric(service: Service, name: str) -> float:
    """Give a metric of a service, summed over its labels; 0 where it has no sample yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=_ANSWER_S) as answer:
        text: str = answer.read().decode()
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, flags=re.MULTILINE)
    return sum(float(value) for value in found)
