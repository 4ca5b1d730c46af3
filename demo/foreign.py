"""A producer and an approver that somebody else wrote: they know the topics and the JSON, and nothing of Runfold.

Programs of their own: `python -m demo.foreign start …` and `… approve …`. They use a plain Kafka client with its
default partitioner, which for librdkafka is not the one of Java's client: the record may land in another partition
than its run's, and is forwarded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

Json = Any
_PATIENCE_S = 60.0


def _produce(bootstrap: str, topic: str, key: str, value: Json) -> Message:
    delivered: list[Message] = []
    failed: list[object] = []

    def note(error: object, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, key=key, value=json.dumps(value), on_delivery=note)
    producer.flush(_PATIENCE_S)
    if not delivered:
        sys.exit(f"foreign: the record for {topic} was not acknowledged: {failed or 'no answer'}")
    return delivered[0]


def _said(message: Message) -> str:
    return json.dumps({"topic": message.topic(), "partition": message.partition(), "offset": message.offset()})


def _start(options: argparse.Namespace) -> None:
    value = {"type": "run_started", "run_id": options.run, "agent": options.agent, "input": json.loads(options.input)}
    sys.stdout.write(_said(_produce(options.bootstrap, f"{options.prefix}requests", options.run, value)) + "\n")


def _approve(options: argparse.Namespace) -> None:
    """Read notifications until one asks for an approval of the run, and give it."""
    opened = _await_request(options.bootstrap, f"{options.prefix}notifications", options.run)
    value = {
        "type": "approval",
        "run_id": opened["run_id"],
        "approval_id": opened["approval_id"],
        "decision": "approved",
        "approved_by": options.by,
        "comment": f"I have read the arguments of {opened['tool']}",
        "arguments_digest": opened["arguments_digest"],
    }
    _produce(options.bootstrap, f"{options.prefix}approvals", options.run, value)
    sys.stdout.write(json.dumps(opened) + "\n")


def _await_request(bootstrap: str, topic: str, run_id: str) -> Json:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"foreign-{os.getpid()}", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            told = json.loads(message.value() or b"{}")
            if told["type"] == "wait_opened" and told["run_id"] == run_id and told["reason"] == "awaiting_approval":
                return told
    finally:
        consumer.close()
    sys.exit(f"foreign: nobody asked for an approval of {run_id} within {_PATIENCE_S:.0f} s")


def main() -> None:
    """Do what the command line says, and print a JSON object about it."""
    parser = argparse.ArgumentParser(prog="demo.foreign")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--run", required=True)
    commands = parser.add_subparsers(required=True)
    start = commands.add_parser("start")
    start.add_argument("--agent", required=True)
    start.add_argument("--input", required=True)
    start.set_defaults(act=_start)
    approve = commands.add_parser("approve")
    approve.add_argument("--by", required=True)
    approve.set_defaults(act=_approve)
    options = parser.parse_args()
    options.act(options)


if __name__ == "__main__":
    main()
