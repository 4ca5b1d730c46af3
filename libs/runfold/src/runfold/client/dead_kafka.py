"""The dead topic on Kafka: all of it, up to where it ends now."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from runfold.adapters.kafka.clients import Heard, make_consumer
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaReadFailed, KafkaUnavailable, kafka_error
from runfold.client.dead import view
from runfold.ports.inputs import InputRecord

_ANSWER_S = 10.0
_BATCH = 500
_FETCH_WAIT_MS = 100


class KafkaDeadLetters:
    """Reads the dead topic in a thread, with a consumer of its own that belongs to no group.

    Args:
        config: How to reach Kafka.
        topic: Its full name.
        partitions: Of the topic.
    """

    def __init__(self, config: KafkaConfig, topic: str, partitions: int) -> None:
        self._config = config
        self._topic = topic
        self._partitions = partitions

    async def read(self) -> list[dict[str, Any]]:
        """Give every record, oldest first.

        Raises:
            KafkaUnavailable: No broker answered.
            KafkaReadFailed: The topic does not exist, or may not be read.
        """
        records = await asyncio.to_thread(self._read)
        return [view(record) for record in sorted(records, key=lambda record: record.timestamp_ms)]

    def _read(self) -> list[InputRecord]:
        heard = Heard()
        consumer = make_consumer(self._config.reader(_FETCH_WAIT_MS), heard)
        try:
            return self._drain(consumer, self._bounds(consumer), heard)
        except KafkaException as error:
            reason = kafka_error(error)
            message = f"{self._topic}: {reason.str()}"
            raise (KafkaUnavailable if reason.code() < 0 else KafkaReadFailed)(message) from error
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        """Partition -> offsets of the first record and behind the last one; only those that hold any."""
        bounds = {}
        for partition in range(self._partitions):
            place = TopicPartition(self._topic, partition)
            # None at a time-out, which the stubs do not know.
            found = cast("tuple[int, int] | None", consumer.get_watermark_offsets(place, timeout=_ANSWER_S))
            if found is None:
                message = f"{self._topic}[{partition}] did not tell its bounds"
                raise KafkaUnavailable(message)
            if found[0] < found[1]:
                bounds[partition] = found
        return bounds

    def _drain(self, consumer: Consumer, bounds: dict[int, tuple[int, int]], heard: Heard) -> list[InputRecord]:
        consumer.assign([TopicPartition(self._topic, partition, start) for partition, (start, _) in bounds.items()])
        left = {partition: end for partition, (_, end) in bounds.items()}
        records: list[InputRecord] = []
        deadline = time.monotonic() + _ANSWER_S
        while left:
            for message in self._some(consumer):
                record = _record(message)
                if record.offset + 1 >= left.get(record.partition, 0):
                    left.pop(record.partition, None)
                records.append(record)
                deadline = time.monotonic() + _ANSWER_S
            if time.monotonic() > deadline:
                message_ = f"{self._topic} could not be read to its end: {heard}"
                raise KafkaUnavailable(message_)
        return records

    def _some(self, consumer: Consumer) -> list[Message]:
        first = consumer.poll(0.5)
        messages = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        return messages


def _record(message: Message) -> InputRecord:
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return InputRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value or b"") for name, value in headers),
        timestamp_ms=message.timestamp()[1],
    )
