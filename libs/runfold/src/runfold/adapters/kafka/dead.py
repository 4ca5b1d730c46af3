"""The dead topic on Kafka: all of it, up to where it ends now."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from runfold.adapters.kafka.clients import Heard, make_consumer
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaReadFailed, KafkaUnavailable, kafka_error
from runfold.ports.inputs import InputRecord

_ANSWER_S = 10.0
_AGAIN_S = 0.1
_ELECTING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_BATCH = 500
_FETCH_WAIT_MS = 100


class KafkaDeadLetters:
    """The port ``DeadLetters``: read in a thread, with a consumer of its own that belongs to no group.

    Args:
        config: How to reach Kafka.
        topic: Its full name.
        partitions: Of the topic.
    """

    def __init__(self, config: KafkaConfig, topic: str, partitions: int) -> None:
        self._config = config
        self._topic = topic
        self._partitions = partitions

    async def read(self) -> list[InputRecord]:
        """Give every record, oldest first.

        Raises:
            KafkaUnavailable: No broker answered.
            KafkaReadFailed: The topic does not exist, or may not be read.
        """
        records = await asyncio.to_thread(self._read)
        return sorted(records, key=lambda record: record.timestamp_ms)

    def _read(self) -> list[InputRecord]:
        heard = Heard()
        consumer = make_consumer(self._config.reader(_FETCH_WAIT_MS), heard)
        try:
            return self._drain(consumer, self._bounds(consumer), heard)
        except KafkaException as error:
            reason = kafka_error(error)
            message = f"{self._topic}: {reason.str()}"
            is_away = reason.code() < 0 or reason.code() in _ELECTING
            raise (KafkaUnavailable if is_away else KafkaReadFailed)(message) from error
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        """Partition -> offsets of the first record and behind the last one; only those that hold any."""
        deadline = time.monotonic() + _ANSWER_S
        found = {partition: self._watermarks(consumer, partition, deadline) for partition in range(self._partitions)}
        return {partition: (start, end) for partition, (start, end) in found.items() if start < end}

    def _watermarks(self, consumer: Consumer, partition: int, deadline: float) -> tuple[int, int]:
        """Ask again while a leader is being elected: the client does not do it itself."""
        place = TopicPartition(self._topic, partition)
        while True:
            try:
                # None at a time-out, which the stubs do not know.
                found = cast("tuple[int, int] | None", consumer.get_watermark_offsets(place, timeout=_ANSWER_S))
            except KafkaException as error:
                if kafka_error(error).code() not in _ELECTING or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)
                continue
            if found is None:
                message = f"{self._topic}[{partition}] did not tell its bounds"
                raise KafkaUnavailable(message)
            return found

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
