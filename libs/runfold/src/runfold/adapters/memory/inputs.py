"""The input topics on the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.ports.inputs import InputRecord
from runfold.ports.log import LogBounds, LogUnrecoverable


class MemoryInputs:
    """The ``Inputs`` of one "process"."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Read each topic from its next offset on; one that is not named, from 0."""
        await asyncio.sleep(0)
        starts = {topic: next_offsets.get(topic, 0) for topic in self._broker.topics.inputs}
        return MemoryInputReader(self._broker, partition, starts)

    async def fetch(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Read one record; None if retention has deleted it."""
        await asyncio.sleep(0)
        begin, end = self._broker.bounds(topic, partition)
        if offset >= end:
            message = f"{topic}[{partition}]: offset {offset} does not exist, the topic ends at {end}"
            raise LogUnrecoverable(message)
        if offset < begin:
            return None
        return _record(topic, partition, self._broker.slice(topic, partition, offset, offset + 1)[0])

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """Say what exists of a topic now."""
        await asyncio.sleep(0)
        return LogBounds(*self._broker.bounds(topic, partition))

    async def identities(self) -> dict[str, str]:
        """Say which topics these are."""
        await asyncio.sleep(0)
        return {topic: self._broker.topic_id(topic) for topic in self._broker.topics.inputs}


class MemoryInputReader:
    """Reads the inputs of one partition."""

    def __init__(self, broker: MemoryBroker, partition: int, starts: Mapping[str, int]) -> None:
        self.skipped: dict[str, tuple[int, int]] = {}
        self._lost_from: dict[str, int] = {}
        self._broker = broker
        self._partition = partition
        self._next = dict(starts)
        for topic in starts:
            self._check(topic)

    async def next(self, max_records: int) -> list[InputRecord]:
        """Wait for records; give at least one."""
        await asyncio.sleep(0)
        with self._broker.waiting([(topic, self._partition) for topic in self._next]) as changed:
            while not (records := self._take(max_records)):
                await changed.wait()
                changed.clear()
        return records

    def _take(self, max_records: int) -> list[InputRecord]:
        records: list[InputRecord] = []
        for topic in list(self._next):
            self._check(topic)
            first = self._next[topic]
            found = self._broker.slice(topic, self._partition, first, first + max_records - len(records))
            self._next[topic] += len(found)
            records += [_record(topic, self._partition, stored) for stored in found]
            # A topic that gave something comes last next time, so that a full one does not starve the others.
            if found:
                self._lost_from.pop(topic, None)
                self._next[topic] = self._next.pop(topic)
        return records

    def _check(self, topic: str) -> None:
        """Go on at the first record that exists, and say so; beyond the end there is nothing to go on with."""
        begin, end = self._broker.bounds(topic, self._partition)
        wanted = self._next[topic]
        if wanted > end:
            message = f"{topic}[{self._partition}]: offset {wanted} is the next to read, but the topic ends at {end}"
            raise LogUnrecoverable(message)
        if wanted < begin:
            # Until a record is given, whoever reads has not looked: nothing that was lost before may be forgotten.
            self.skipped[topic] = (self._lost_from.setdefault(topic, wanted), begin)
            self._next[topic] = begin

    async def close(self) -> None:
        """Do nothing: nothing is held between calls."""


def _record(topic: str, partition: int, stored: Stored) -> InputRecord:
    return InputRecord(topic, partition, stored.offset, stored.key, stored.value, stored.headers, stored.timestamp_ms)
