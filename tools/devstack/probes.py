"""Does a server answer? Each probe is one short question, asked as a client would ask it."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

import boto3
import psycopg
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql

from devstack.errors import StackError
from devstack.server import ADDRESS_VARIABLE, ServiceName

_QUESTION_S: Final = 1.0
_TICK_S: Final = 0.05

# librdkafka reports every refused connection; while a server starts that is no news.
_silent = logging.getLogger("devstack.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def kafka_answers(bootstrap: str) -> bool:
    """Say whether a broker is there *and* registered: after kill -9 it accepts connections seconds before that."""
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100, "reconnect.backoff.ms": 20}, logger=_silent
    )
    try:
        return bool(admin.list_topics(timeout=_QUESTION_S).brokers)
    except KafkaException:
        return False


def postgres_answers(dsn: str) -> bool:
    """Say whether a session can be opened and a query is answered."""
    try:
        with psycopg.connect(dsn, connect_timeout=2) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def s3_answers(environment: Mapping[str, str], bucket: str) -> bool:
    """Say whether the server takes signed requests, and see to it that the bucket exists."""
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
        config=Config(connect_timeout=_QUESTION_S, read_timeout=5, retries={"total_max_attempts": 1}),
    )
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        return error.response["Error"]["Code"] in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
    except BotoCoreError:
        return False
    finally:
        client.close()
    return True


def wait_until(ready: Callable[[], bool], service: ServiceName, address: str, timeout_s: float) -> None:
    """Return when `ready` says so, for a server whose process we do not hold; raise StackError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() >= deadline:
            variable = ADDRESS_VARIABLE[service]
            message = (
                f"{service} at {address} ({variable}) does not answer within {timeout_s:.0f} s: start it; or, if the "
                f"address is that of a stack that is gone, unset {variable} (a new shell has none of them)"
            )
            raise StackError(message)
        time.sleep(_TICK_S)


def create_database(dsn: str, name: str) -> bool:
    """Make a database through a session of another one; say whether it is there now."""
    try:
        with psycopg.connect(dsn, connect_timeout=2, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    except psycopg.errors.DuplicateDatabase:
        return True
    except psycopg.OperationalError:
        return False
    return True
