"""One installation of Runfold on given servers: its settings, its command line, and how it is removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

import psycopg
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import sql

from demo.errors import DemoError
from demo.processes import BIN

Json = Any
ROOT: Final = Path(__file__).resolve().parents[1]
_PATIENCE_S: Final = 60.0
_PROMPT: Final = {"fetch.wait.max.ms": 50}
# The shortest session that a stock broker allows: a killed executor's partitions move after 6 s instead of 10 s.
SHORT_SESSION: Final = "session.timeout.ms=6000\nheartbeat.interval.ms=1500\n"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic as a foreign reader sees it; ``at_ms``: its time stamp, milliseconds since 1970."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Installation:
    """Names of its own for topics, groups and tables, so that it can share servers with others.

    Attributes:
        environment: Of every process: this process's own, without other RUNFOLD_ variables, and the installation's.
        folder: For logs, payloads and the Kafka settings.
        topics: Prefix of the topics; ``schema``: of the tables.
    """

    environment: Mapping[str, str]
    folder: Path
    topics: str
    schema: str

    @classmethod
    def at(
        cls,
        servers: Mapping[str, str],
        folder: Path,
        *,
        app: str,
        partitions: int,
        kafka: str = SHORT_SESSION,
        extra: Mapping[str, str] | None = None,
    ) -> Self:
        """Name an installation; nothing is made on the servers before ``runfold setup``.

        Args:
            servers: The variables that say where Kafka and Postgres are.
            folder: Made if it does not exist.
            app: ``module:attribute``.
            partitions: Of each topic.
            kafka: Lines of RUNFOLD_KAFKA_CONFIG.
            extra: Further variables, e.g. for the app.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "kafka.properties"
        config.write_text(kafka, encoding="utf-8")
        name = uuid.uuid4().hex[:8]
        own = {key: value for key, value in os.environ.items() if not key.startswith("RUNFOLD_")}
        environment = {
            **own,
            "RUNFOLD_KAFKA_BOOTSTRAP": servers["RUNFOLD_KAFKA_BOOTSTRAP"],
            "RUNFOLD_KAFKA_CONFIG": str(config),
            "RUNFOLD_POSTGRES_DSN": servers["RUNFOLD_POSTGRES_DSN"],
            "RUNFOLD_TOPIC_PREFIX": f"demo-{name}.",
            "RUNFOLD_POSTGRES_SCHEMA": f"demo_{name}",
            "RUNFOLD_PARTITIONS": str(partitions),
            "RUNFOLD_BLOB_URL": (folder / "blobs").resolve().as_uri(),
            "RUNFOLD_APP": app,
            # One code base from start to end, whatever happens to the checkout meanwhile.
            "RUNFOLD_REVISION": "demo-1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")]),
            "PYTHONUNBUFFERED": "1",
            **(extra or {}),
        }
        return cls(environment, folder, f"demo-{name}.", f"demo_{name}")

    @property
    def bootstrap(self) -> str:
        """Where Kafka is."""
        return self.environment["RUNFOLD_KAFKA_BOOTSTRAP"]

    def runfold(self, *arguments: str, expected: int = 0) -> str:
        """Run the operator's command; gives what it prints.

        Raises:
            DemoError: It ends with another exit code than ``expected``.
        """
        return _run(f"runfold {' '.join(arguments)}", [str(BIN / "runfold"), *arguments], self.environment, expected)

    def read(self, *arguments: str) -> Json:
        """Run a reading command with --json; gives the value."""
        return json.loads(self.runfold(*arguments, "--json"))

    def events(self, run_id: str) -> list[Json]:
        """Give a run's events as `runfold events --json` does."""
        return [json.loads(line) for line in self.runfold("events", run_id, "--json").splitlines()]

    def foreign(self, run_id: str, *arguments: str) -> Json:
        """Let the foreign program act, as a process of its own that knows no RUNFOLD_ variable."""
        command = [sys.executable, "-m", "demo.foreign"]
        where = ["--bootstrap", self.bootstrap, "--prefix", self.topics, "--run", run_id]
        known = {key: value for key, value in self.environment.items() if not key.startswith("RUNFOLD_")}
        return json.loads(_run(f"foreign {arguments[0]}", [*command, *where, *arguments], known, 0))

    def notifications(self) -> list[Json]:
        """Give what has been told to the outside so far."""
        return [json.loads(record.value) for record in self.records("notifications")]

    def records(self, topic: str) -> list[Record]:
        """Give all records of a topic that exist now, partition by partition."""
        name = f"{self.topics}{topic}"
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": name, "enable.auto.commit": False, **_PROMPT}
        )
        found: list[Record] = []
        try:
            partitions = consumer.list_topics(name, timeout=_PATIENCE_S).topics[name].partitions
            bounds = {
                number: consumer.get_watermark_offsets(TopicPartition(name, number), timeout=_PATIENCE_S)
                for number in partitions
            }
            left = {number: end for number, (low, end) in bounds.items() if low < end}
            # All at once: a newly assigned partition waits until the fetch that is pending comes back.
            consumer.assign([TopicPartition(name, number, bounds[number][0]) for number in left])
            while left:
                message = consumer.poll(_PATIENCE_S)
                if message is None or message.error() is not None:
                    raise DemoError(f"{name} should have records up to {left}, and cannot be read")
                record = _record(message)
                if record.offset < bounds[record.partition][1]:
                    found.append(record)
                if record.offset + 1 >= bounds[record.partition][1]:
                    left.pop(record.partition, None)
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def snapshot_of(self, run_id: str) -> int | None:
        """Give the seq that the newest snapshot of a run covers, None if there is none."""
        table = sql.Identifier(self.schema, "snapshots")
        with psycopg.connect(self.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True) as connection:
            row = connection.execute(
                sql.SQL("select max(seq) from {} where run_id = %s").format(table), (run_id,)
            ).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def remove(self) -> None:
        """Delete its topics, groups and tables: on servers that outlive it, nothing may stay behind."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [name for name in admin.list_topics(timeout=_PATIENCE_S).topics if name.startswith(self.topics)]
        if topics:
            for deleted in admin.delete_topics(topics).values():
                deleted.result(_PATIENCE_S)
        listed = admin.list_consumer_groups().result(_PATIENCE_S)
        groups = [group.group_id for group in listed.valid if group.group_id.startswith(self.topics)]
        if groups:
            for name, gone in admin.delete_consumer_groups(groups).items():
                try:
                    gone.result(_PATIENCE_S)
                except KafkaException as error:
                    sys.stderr.write(f"demo: group {name} stays: {error}\n")
        with psycopg.connect(self.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True) as connection:
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self.schema)))


def _record(message: Message) -> Record:
    # A consumed message has them as pairs of text and bytes; the types allow what a producer may hand in.
    headers = cast("list[tuple[str, bytes]]", message.headers() or [])
    where = (message.partition() or 0, message.offset() or 0)
    return Record(*where, message.key(), message.value() or b"", tuple(headers), message.timestamp()[1])


def _run(name: str, command: list[str], environment: Mapping[str, str], expected: int) -> str:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, check=False, timeout=2 * _PATIENCE_S
    )
    if done.returncode != expected:
        raise DemoError(
            f"`{name}` should end with code {expected}, not {done.returncode}:\n{done.stdout}{done.stderr}".rstrip()
        )
    return done.stdout
