"""Publishing to topics other than the log."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaError

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.producer import AckedProducer, Delivery, NotProduced
from runfold.adapters.topics import MAX_COPY_RECORD, check_size
from runfold.ports.log import RecordTooLarge
from runfold.ports.publisher import Published, PublishFailed


class KafkaPublisher:
    """A ``Publisher`` with a producer of its own, so that its failures never end an epoch of the log.

    Args:
        config: How to reach Kafka.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._producer = AckedProducer(config, MAX_COPY_RECORD)

    async def start(self, topic: str) -> None:
        """Connect before it is needed; ``topic`` is any that will be written.

        Raises:
            KafkaConfigError: A setting is refused.
            KafkaUnavailable: No broker answers.
        """
        await self._producer.start(topic)

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Produce one record and wait for its acknowledgement, as long as Kafka is away."""
        check_size(key, value, headers, MAX_COPY_RECORD, topic)
        delivered: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def settle(delivery: Delivery) -> None:
            if delivered.done():  # Cancelled: nobody waits any more.
                return
            if isinstance(delivery, KafkaError):
                delivered.set_exception(_failure(topic, delivery))
            else:
                delivered.set_result(Published(topic, *delivery))

        try:
            self._producer.produce(topic, -1 if partition is None else partition, key, value, headers, settle)
        except NotProduced as error:
            raise _failure(topic, error.error) from error
        return await delivered

    async def close(self) -> None:
        """Wait some seconds for what is in flight, then let go."""
        await self._producer.close()


def _failure(topic: str, error: KafkaError) -> Exception:
    """Tell a record that never fits (the broker's limit may be below ours) from one to be tried again."""
    kind = RecordTooLarge if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else PublishFailed
    return kind(f"{topic}: {error.str()}")
