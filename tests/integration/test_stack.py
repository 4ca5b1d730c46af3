"""The development stack: each server does its work, and survives what chaos tests will do to it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import boto3
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from devstack import Server, Stack, StackError
from devstack.processes import Identity
from devstack.record import Record

pytestmark = pytest.mark.integration

_ROOT = Path(__file__).resolve().parents[2]


def create_topic(bootstrap: str, topic: str) -> None:
    """Make a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(timeout=30)


def produce(bootstrap: str, topic: str, value: bytes, *, appears_s: float = 30.0) -> None:
    """Append one record and wait for its acknowledgement; a broker that has just started knows its topics later."""
    failures: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    wait_ms = round(appears_s * 1000)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "topic.metadata.propagation.max.ms": wait_ms})
    producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read the first `count` values of the topic's only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}.reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []
        for _ in range(count):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            value = message.value()
            assert value is None or isinstance(value, bytes)
            values.append(value)
        return values
    finally:
        consumer.close()


def kill(server: Server) -> None:
    """SIGKILL."""
    server.kill()


def stop(server: Server) -> None:
    """Shut down in order."""
    server.stop()


ENDS = pytest.mark.parametrize("end", [kill, stop])


def require_control(server: Server) -> None:
    """Skip where the server belongs to somebody else."""
    if not server.controllable:
        pytest.skip(f"{server.name} was given by the environment: not ours to kill")


def test_kafka_keeps_records(kafka_bootstrap: str, topic_prefix: str) -> None:
    """What was acknowledged can be read."""
    topic = f"{topic_prefix}log"
    create_topic(kafka_bootstrap, topic)
    produce(kafka_bootstrap, topic, b"one")
    assert consume(kafka_bootstrap, topic, 1) == [b"one"]


def test_kafka_creates_no_topic_by_itself(kafka_bootstrap: str, topic_prefix: str) -> None:
    """A typo in a topic's name is an error, not a new topic with the wrong partition count."""
    with pytest.raises(AssertionError):
        produce(kafka_bootstrap, f"{topic_prefix}nowhere", b"lost", appears_s=1.0)


def test_postgres_answers(postgres_dsn: str) -> None:
    """A session can be opened."""
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_s3_keeps_objects(s3_env: dict[str, str]) -> None:
    """What was put can be got, with the endpoint and keys of the environment."""
    bucket, _, prefix = s3_env["RUNFOLD_BLOB_URL"].removeprefix("s3://").partition("/")
    client = boto3.client(
        "s3",
        endpoint_url=s3_env["AWS_ENDPOINT_URL"],
        aws_access_key_id=s3_env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=s3_env["AWS_SECRET_ACCESS_KEY"],
        region_name=s3_env["AWS_DEFAULT_REGION"],
    )
    key = f"{prefix}/test-stack/{uuid.uuid4().hex}"
    client.put_object(Bucket=bucket, Key=key, Body=b"payload")
    assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == b"payload"
    client.close()


@ENDS
def test_kafka_comes_back_with_its_records(
    stack: Stack, kafka_bootstrap: str, topic_prefix: str, end: Callable[[Server], None]
) -> None:
    """After SIGKILL, and after a shutdown, acknowledged records are there and new ones are taken."""
    require_control(stack.kafka)
    topic = f"{topic_prefix}log"
    create_topic(kafka_bootstrap, topic)
    produce(kafka_bootstrap, topic, b"before")
    try:
        end(stack.kafka)
    finally:
        stack.kafka.start()
    produce(kafka_bootstrap, topic, b"after")
    assert consume(kafka_bootstrap, topic, 2) == [b"before", b"after"]


@ENDS
def test_postgres_comes_back_with_its_rows(
    stack: Stack, postgres_dsn: str, postgres_schema: str, end: Callable[[Server], None]
) -> None:
    """After SIGKILL, and after a shutdown, committed rows are there, though a session was open."""
    require_control(stack.postgres)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(postgres_schema)))
        connection.execute(sql.SQL("create table {} as select 7 as n").format(sql.Identifier(postgres_schema, "kept")))
        try:
            end(stack.postgres)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        finally:
            stack.postgres.start()
    with psycopg.connect(postgres_dsn) as connection:
        kept = connection.execute(sql.SQL("select n from {}").format(sql.Identifier(postgres_schema, "kept")))
        assert kept.fetchone() == (7,)


def test_two_stacks_do_not_meet(stack: Stack) -> None:
    """A second stack in the same checkout has ports and a folder of its own, and takes only itself away."""
    with Stack.start(_ROOT, mode="local", services={"postgres"}) as second:
        assert second.folder != stack.folder
        dsn = second.environment()["RUNFOLD_POSTGRES_DSN"]
        assert dsn != stack.environment()["RUNFOLD_POSTGRES_DSN"]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, connect_timeout=2)
    assert not second.folder.exists()
    with psycopg.connect(stack.environment()["RUNFOLD_POSTGRES_DSN"]) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_stack_whose_owner_was_killed_is_swept(tmp_path: Path) -> None:
    """Servers left by a program that died are stopped by the next start in the same checkout."""
    program = (
        "import os, signal, sys, pathlib; from devstack import Stack;"
        "Stack.start(pathlib.Path(sys.argv[1]), mode='local', services={'postgres'});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": str(_ROOT / "tools")}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False, timeout=60)
    (folder,) = (tmp_path / ".stack" / "private").iterdir()
    record = Record.load(folder)
    assert record is not None
    orphan: Identity = record.processes["postgres"]
    assert orphan.alive()
    with Stack.start(tmp_path, mode="local", services={"postgres"}):
        assert not orphan.alive()
        assert not folder.exists()


def test_mode_env_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for given servers is told which address is not given."""
    monkeypatch.delenv("RUNFOLD_KAFKA_BOOTSTRAP", raising=False)
    with pytest.raises(StackError, match="RUNFOLD_KAFKA_BOOTSTRAP"):
        Stack.start(tmp_path, mode="env", services={"kafka"})


def test_a_given_server_is_not_ours_to_kill(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of the environment is used as it is, and closing leaves the server alone."""
    dsn = stack.environment()["RUNFOLD_POSTGRES_DSN"]
    monkeypatch.setenv("RUNFOLD_POSTGRES_DSN", dsn)
    with Stack.start(tmp_path, mode="env", services={"postgres"}) as given:
        assert given.environment()["RUNFOLD_POSTGRES_DSN"] == dsn
        with pytest.raises(StackError, match="not ours"):
            given.postgres.kill()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
