"""Publishing for people: an answer within seconds, or an error."""

from __future__ import annotations

import asyncio

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.ports.publisher import Published, PublishFailed

_ACK_S = 30.0


class PromptPublisher:
    """A ``Publisher`` for people: a producer waits for Kafka without limit, a person does not."""

    def __init__(self, config: KafkaConfig) -> None:
        self._inner = KafkaPublisher(config)
        self._started = False

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Produce one record.

        Raises:
            KafkaUnavailable: Nothing was produced: no broker answers.
            PublishFailed: See there; also when no acknowledgement has come in time.
        """
        if not self._started:
            await self._inner.start(topic)
            self._started = True
        try:
            async with asyncio.timeout(_ACK_S):
                return await self._inner.publish(topic, key, value, headers=headers, partition=partition)
        except TimeoutError:
            message = f"{topic}: no acknowledgement within {_ACK_S:g} s; the record may still arrive"
            raise PublishFailed(message) from None

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()
