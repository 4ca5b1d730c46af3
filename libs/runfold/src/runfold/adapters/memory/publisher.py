"""Publishing to the in-memory broker."""

from __future__ import annotations

import asyncio

from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.topics import MAX_COPY_RECORD, check_size
from runfold.core.partitioning import murmur2
from runfold.ports.publisher import Published, PublishFailed


class MemoryPublisher:
    """A ``Publisher``; records without a key go to the partitions in turn."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._turn = 0

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Append one record; it is there before this returns."""
        check_size(key, value, headers, MAX_COPY_RECORD, topic)
        chosen = self._choose(key) if partition is None else partition
        if not self._broker.exists(topic, chosen):
            message = f"{topic}: there is no such topic, or it has no partition {chosen}"
            raise PublishFailed(message)
        await asyncio.sleep(0)
        offset = self._broker.append(topic, chosen, key, value, headers)
        await asyncio.sleep(0)
        return Published(topic, chosen, offset)

    def _choose(self, key: bytes | None) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % self._broker.partitions
        self._turn += 1
        return self._turn % self._broker.partitions
