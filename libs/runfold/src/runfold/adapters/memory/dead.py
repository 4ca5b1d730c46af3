"""The dead topic on the in-memory broker."""

from __future__ import annotations

import asyncio

from runfold.adapters.memory.broker import MemoryBroker
from runfold.ports.inputs import InputRecord


class MemoryDeadLetters:
    """The port ``DeadLetters``."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def read(self) -> list[InputRecord]:
        """Give every record, oldest first."""
        await asyncio.sleep(0)
        topic = self._broker.topics.dead
        found = [
            InputRecord(topic, number, stored.offset, stored.key, stored.value, stored.headers, stored.timestamp_ms)
            for number in range(self._broker.partitions)
            for stored in self._broker.slice(topic, number, *self._broker.bounds(topic, number))
        ]
        return sorted(found, key=lambda record: record.timestamp_ms)
