"""Disasters made for real, on real services: each is refused with what to do, or repaired; no effect is repeated."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg import sql

from demo.installation import ROOT, Installation
from demo.processes import BIN, Service, Services
from demo.watching import await_state
from devstack import Stack
from runfold.service.metrics import Name
from tests.acceptance.disaster_app import BOOK_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

Json = Any
# Far shorter than in production, so that a partition is claimed soon after a kill.
SESSION = "session.timeout.ms=3000\nheartbeat.interval.ms=700\n"
PATIENCE_S = 60.0
TABLES = ("partitions", "runs", "snapshots", "message_chunks", "waits", "open_calls", "leases")
WHAT_IS_COMPARED = (
    "select * from {schema}.runs order by run_id",
    "select distinct on (run_id) * from {schema}.snapshots order by run_id, seq desc",
    "select run_id, sum(count) from {schema}.message_chunks group by run_id order by run_id",
    "select wait_id, run_id, step, seq, reason, detail, arguments_digest from {schema}.waits order by wait_id",
)


@dataclass
class Place:
    """One installation, its services, and what can be broken about it."""

    installation: Installation
    services: Services
    running: list[Service] = field(default_factory=list)
    started: int = 0

    def start(self) -> Self:
        """Start an executor and a compactor."""
        self.started += 1
        self.running = [
            self.services.start("runfold-step-executor", f"executor-{self.started}"),
            self.services.start("runfold-snapshot-compactor", f"compactor-{self.started}"),
        ]
        self.services.await_ready(*self.running)
        return self

    def stop(self) -> None:
        """Stop them as a person does."""
        for service in self.running:
            self.services.stop(service)
        self.running = []

    def runfold(self, *line: str, code: int = 0) -> str:
        """Run a command; gives all that it says."""
        done = subprocess.run(
            [str(BIN / "runfold"), *line],
            env=dict(self.installation.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{line} ended with {done.returncode}: {said}"
        return said

    def begin(self, *run_ids: str) -> None:
        """Start runs, and wait until Postgres knows that they wait for their approval."""
        for run_id in run_ids:
            given = {"text": run_id * 1000}
            self.send("requests", {"type": "run_started", "run_id": run_id, "agent": "writer", "input": given})
        await_state(self.services, "waiting runs", lambda: set(run_ids) <= set(self.waiting()) or None)
        await_state(self.services, "an executor without runs in memory", lambda: self.in_memory() == 0 or None)

    def in_memory(self) -> float:
        """How many runs the executor holds."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.running[0].port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{Name.RUNS_IN_MEMORY}{{"))

    def approve(self, run_id: str) -> None:
        """Approve a run's only gate; nothing is waited for."""
        decision = {"approval_id": f"{run_id}:2", "decision": "approved", "approved_by": "dana"}
        self.send("approvals", {"type": "approval", "run_id": run_id, **decision})

    def send(self, topic: str, value: Json) -> None:
        """Produce an input, as any program may."""
        producer = Producer({"bootstrap.servers": self.installation.bootstrap})
        producer.produce(f"{self.installation.topics}{topic}", json.dumps(value).encode(), value["run_id"].encode())
        assert producer.flush(PATIENCE_S) == 0

    def ended(self, *run_ids: str) -> None:
        """Wait until Postgres knows that runs have completed."""

        def completed() -> bool | None:
            return all(self.status(run_id) == "completed" for run_id in run_ids) or None

        await_state(self.services, f"the end of {run_ids}", completed)

    def waiting(self, reason: str = "awaiting_approval") -> list[str]:
        """Runs that wait for a reason."""
        return [row[0] for row in self.query("select run_id from {schema}.waits where reason = %s", reason)]

    def status(self, run_id: str) -> str | None:
        """A run's status in Postgres."""
        rows = self.query("select status from {schema}.runs where run_id = %s", run_id)
        return rows[0][0] if rows else None

    def query(self, text: str, *values: Any) -> list[Any]:
        """Run a statement on the installation's schema."""
        with psycopg.connect(self.installation.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True) as connection:
            done = connection.execute(self._named(text), values or None)
            return done.fetchall() if done.description else []

    def _named(self, text: str) -> sql.Composed:
        backup = sql.Identifier(f"{self.installation.schema}_backup")
        return sql.SQL(text).format(schema=sql.Identifier(self.installation.schema), backup=backup)

    def tables(self) -> list[Any]:
        """Everything of which the log says exactly what it has to be."""
        return [self.query(text) for text in WHAT_IS_COMPARED]

    def backup(self) -> None:
        """Copy every table, as pg_dump does."""
        self.query("create schema {backup}")
        with psycopg.connect(self.installation.environment["RUNFOLD_POSTGRES_DSN"]) as connection:
            for table in TABLES:
                here = sql.Identifier(self.installation.schema, table)
                there = sql.Identifier(f"{self.installation.schema}_backup", table)
                connection.execute(sql.SQL("create table {} as table {}").format(there, here))

    def restore(self) -> None:
        """Put the copy back in one transaction, as pg_restore --clean --single-transaction does."""
        generated = "select column_name from information_schema.columns where table_schema = %s and table_name = %s"
        with psycopg.connect(self.installation.environment["RUNFOLD_POSTGRES_DSN"]) as connection:
            for table in TABLES:
                where = (self.installation.schema, table)
                rows = connection.execute(f"{generated} and is_generated = 'NEVER'", where).fetchall()
                columns = sql.SQL(", ").join(sql.Identifier(row[0]) for row in rows)
                here, there = sql.Identifier(*where), sql.Identifier(f"{where[0]}_backup", table)
                connection.execute(sql.SQL("delete from {}").format(here))
                copy = sql.SQL("insert into {} ({}) select {} from {}").format(here, columns, columns, there)
                connection.execute(copy)
        self.query("drop schema {backup} cascade")

    def recreate(self, topic: str) -> None:
        """Delete a topic, and make it again."""
        admin = AdminClient({"bootstrap.servers": self.installation.bootstrap})
        name = f"{self.installation.topics}{topic}"
        count = len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions)
        admin.delete_topics([name])[name].result(PATIENCE_S)
        await_state(self.services, "the topic's end", lambda: name not in admin.list_topics().topics or None)
        self.runfold("setup")
        assert len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == count

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below an offset."""
        admin = AdminClient({"bootstrap.servers": self.installation.bootstrap})
        place = TopicPartition(f"{self.installation.topics}{topic}", partition, offset)
        admin.list_topics(place.topic, timeout=PATIENCE_S)  # see adapters/kafka/offsets.py
        admin.delete_records([place])[place].result(PATIENCE_S)

    def refused(self, extra: dict[str, str] | None = None) -> tuple[str, str]:
        """Start an executor, which must end, and a compactor, which must say so; gives what each says."""
        self.started += 1
        environment = {**self.installation.environment, **(extra or {})}
        with Services(environment, self.installation.folder / f"refused-{self.started}") as services:
            compactor = services.start("runfold-snapshot-compactor", "compactor")
            executor = services.start("runfold-step-executor", "executor")
            executor.is_expected_to_run = False
            assert executor.child.wait(PATIENCE_S) == 1, executor.tail()
            said = await_state(services, "a stopped partition", lambda: lines(compactor, "partition_stopped") or None)
            services.stop(compactor)
            return lines(executor, "failed")[-1]["error"], said[0]["error"]

    def effects(self) -> Counter[str]:
        """What was published, by key."""
        return Counter(Path(self.installation.environment[BOOK_VARIABLE]).read_text(encoding="utf-8").split())


def lines(service: Service, event: str) -> list[Json]:
    """What a service has logged about one thing."""
    found = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


Make = Callable[[], Place]


@pytest.fixture(scope="module")
def make(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Set up installations of the disaster's app."""
    made: list[Place] = []

    def new() -> Place:
        folder = tmp_path_factory.mktemp("disaster")
        book = folder / "book"
        book.touch()
        paths = os.pathsep.join(map(str, (Path(__file__).parent, ROOT, ROOT / "tools")))
        extra = {BOOK_VARIABLE: str(book), "PYTHONPATH": paths, "RUNFOLD_INLINE_LIMIT": "1000"}
        installation = Installation.at(
            stack.environment(), folder, app="disaster_app:app", partitions=1, kafka=SESSION, extra=extra
        )
        installation.runfold("setup")
        place = Place(installation, Services(installation.environment, folder / "logs"))
        made.append(place)
        return place

    yield new
    for place in made:
        place.services.__exit__(None, None, None)
        place.installation.remove()


@pytest.fixture(scope="module")
def place(make: Make) -> Place:
    """One installation whose services run throughout."""
    return make().start()


# --- Postgres and the object store, under running services -----------------------------------------------------


def test_a_missing_blob_stops_its_run_only_and_its_return_lifts_it(place: Place) -> None:
    """The error names the object and what to do; a neighbour completes meanwhile."""
    place.begin("blob", "neighbour")
    aside = Path(place.installation.folder / "aside")
    blobs = Path(place.installation.folder / "blobs")
    blobs.rename(aside)
    blobs.mkdir()
    place.approve("blob")
    await_state(place.services, "the stopped run", lambda: "blob" in place.waiting("error") or None)
    error = place.installation.read("show", "blob")["waits"][0]["detail"]["error"]
    assert "a payload is missing" in error
    assert "runfold resume blob --by NAME" in error
    assert any(path.name in error for path in aside.rglob("*") if path.is_file())
    blobs.rmdir()
    aside.rename(blobs)
    place.approve("neighbour")
    place.ended("neighbour")
    place.runfold("resume", "blob", "--by", "ops")
    place.ended("blob")


def test_corrupted_snapshots_are_set_aside_and_folded_again(place: Place) -> None:
    """Both of a run flipped, a chunk of another gone: verify names them, the runs go on, and all is well again."""
    place.begin("flipped", "chunkless")
    flip = "update {schema}.snapshots set state = set_byte(state, 20, 255 - get_byte(state, 20)) where run_id = %s"
    place.query(flip, "flipped")
    place.query("delete from {schema}.message_chunks where run_id = 'chunkless'")
    said = place.runfold("verify", code=1)
    assert "the snapshot of run 'flipped'" in said
    assert "the snapshot of run 'chunkless'" in said
    for run_id in ("flipped", "chunkless"):
        place.approve(run_id)
    place.ended("flipped", "chunkless")
    for service in place.running:
        assert {line["run_id"] for line in lines(service, "snapshot_set_aside")} >= {"flipped", "chunkless"}
    place.runfold("verify")


def test_postgres_restored_from_an_older_backup_loses_no_approval(place: Place) -> None:
    """Under a running executor: what it does not know is not taken for what does not exist."""
    place.begin("known")
    place.backup()
    place.begin("newer")
    before = place.tables()
    executor, compactor = place.running
    place.services.stop(compactor)  # it could fold what is missing before the executor has asked
    place.restore()
    place.approve("newer")
    place.approve("known")
    await_state(place.services, "a warning", lambda: lines(executor, "postgres_behind") or None, 60.0)
    place.running = [executor, place.services.start("runfold-snapshot-compactor", "compactor-again")]
    place.ended("newer", "known")
    assert [row[0] for row in before[0]] == [row[0] for row in place.tables()[0]]
    assert place.runfold("dead", "list", "--json").strip() == "[]"
    place.runfold("verify")


def test_postgres_lost_entirely_is_folded_again_from_the_log(place: Place) -> None:
    """`runfold setup` under running services: every row and newest snapshot as before, byte for byte."""
    place.begin("survivor")
    before = place.tables()
    place.query("drop schema {schema} cascade")
    place.approve("survivor")
    place.runfold("setup")
    place.ended("survivor")
    after = place.tables()

    def others(tables: list[Any]) -> list[Any]:
        return [[row for row in rows if "survivor" not in row] for rows in tables[:3]]

    assert others(after) == others(before)
    place.runfold("verify")
    assert set(place.effects().values()) == {1}
    place.stop()


# --- the topics -------------------------------------------------------------------------------------------------


def test_another_installations_topics_are_refused(place: Place, make: Make) -> None:
    """The same schema with another prefix: executor, compactor and the commands that read say which is which."""
    other = {"RUNFOLD_TOPIC_PREFIX": make().installation.topics}
    for said in place.refused(other):
        assert "is another log" in said
        assert "RUNFOLD_POSTGRES_SCHEMA" in said
    assert "is another log" in place.runfold("show", "known", "--topic-prefix", other["RUNFOLD_TOPIC_PREFIX"], code=1)


def test_a_log_that_ends_before_what_was_applied_is_refused(place: Place) -> None:
    """It says how many records are lost, which runs are affected, and which command accepts it."""
    applied = place.query("select applied from {schema}.partitions")[0][0]
    place.query("update {schema}.partitions set applied = applied + 3")
    place.query("update {schema}.runs set last_offset = %s where run_id = 'known'", applied + 2)
    for said in place.refused():
        assert "the log was truncated by 3 records or more" in said
        assert "runfold rebuild --partition 0 --accept-loss" in said
        assert "known" in said
    place.query("update {schema}.partitions set applied = applied - 3")
    place.runfold("rebuild", "--yes")
    place.start()
    await_state(place.services, "the folding", lambda: place.status("known"))
    place.runfold("verify")


def test_a_log_that_was_made_again_is_mended_without_repeating_an_effect(place: Place) -> None:
    """Runs keep their ids and ends, the one that waited is held, and verify is content."""
    place.begin("open")
    place.stop()
    place.recreate("log")
    place.approve("open")
    for said in place.refused():
        assert "if the topic was deleted and made again" in said
    assert "nothing was changed" in place.runfold("rebuild", "--accept-loss")
    place.runfold("rebuild", code=1)
    assert "open" in place.runfold("rebuild", "--accept-loss", "--yes")
    place.start()
    await_state(place.services, "the held run", lambda: "open" in place.waiting("error") or None)
    place.ended("known", "survivor")
    place.runfold("verify")
    place.runfold("cancel", "open", "--reason", "lost", "--by", "ops")
    place.begin("afterwards")
    place.approve("afterwards")
    place.ended("afterwards")
    assert set(place.effects().values()) == {1}
    assert "open:3" not in place.effects()
    place.stop()


def test_an_input_topic_that_was_made_again_is_mended(place: Place) -> None:
    """Nothing is skipped or read twice in silence: refused, then mended, then a start is served."""
    place.recreate("requests")
    for said in place.refused():
        assert "input topic" in said
        assert "deleted and made again" in said
    assert "are used up" in place.runfold("rebuild", "--accept-loss", "--yes")
    place.start()
    place.begin("fresh")
    place.approve("fresh")
    place.ended("fresh")
    place.stop()


def test_a_log_that_was_trimmed_too_far_is_refused(place: Place) -> None:
    """Records that no snapshot covers are gone: how many, and what to do."""
    end = place.query("select applied from {schema}.partitions")[0][0]
    place.query("update {schema}.partitions set replay_from = 1, replay_epoch = 0")
    place.trim("log", 0, end - 2)
    for said in place.refused():
        assert f"begins at {end - 2}, but records from 1 on are needed" in said
    place.runfold("rebuild", "--accept-loss", "--yes")
    place.start()
    place.ended("fresh", "known")
    place.stop()
