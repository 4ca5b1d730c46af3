"""The log on the in-memory broker."""

from __future__ import annotations

import asyncio

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.topics import MAX_LOG_RECORD, check_size
from runfold.core.fence import HEADER
from runfold.ports.log import AppendFailed, LogBounds, LogIdentity, LogRecord, LogUnrecoverable, OnAck


class MemoryLog:
    """A ``Log`` of one "process".

    An append reaches the broker in a later turn of the event loop, its acknowledgement comes in one after that.
    Subclasses that inject faults override ``_land`` (what becomes of the record) and ``_acknowledge`` (when, and
    whether, the writer hears of it); both are called in the order of the appends, which they must keep.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._topic = broker.topics.log

    def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
        """Append one record without waiting."""
        encoded = None if key is None else key.encode()
        headers = ((HEADER, head),)
        check_size(encoded, value, headers, MAX_LOG_RECORD, self._topic)
        record = Stored(-1, encoded, value, headers, 0)
        asyncio.get_running_loop().call_soon(self._land, partition, record, on_ack)

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        outcome: int | AppendFailed
        if self._broker.exists(self._topic, partition):
            outcome = self._broker.append(self._topic, partition, record.key, record.value, record.headers)
        else:
            outcome = AppendFailed(f"{self._topic} has no partition {partition}")
        self._acknowledge(partition, on_ack, outcome)

    def _acknowledge(self, _partition: int, on_ack: OnAck, outcome: int | AppendFailed) -> None:
        asyncio.get_running_loop().call_soon(on_ack, outcome)

    async def bounds(self, partition: int) -> LogBounds:
        """Give what exists now."""
        await asyncio.sleep(0)
        return LogBounds(*self._broker.bounds(self._topic, partition))

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read [start, min(end, start + max_records))."""
        await asyncio.sleep(0)
        if start >= end:
            return []
        begin, exists = self._broker.bounds(self._topic, partition)
        if not begin <= start < exists:
            raise LogUnrecoverable(_not_there(self._topic, partition, start, begin, exists))
        return [_record(at) for at in self._broker.slice(self._topic, partition, start, min(end, start + max_records))]

    async def follow(self, partition: int, start: int) -> MemoryFollower:
        """Read from ``start`` on."""
        await asyncio.sleep(0)
        return MemoryFollower(self._broker, partition, start)

    async def identity(self) -> LogIdentity:
        """Say which log this is."""
        await asyncio.sleep(0)
        return LogIdentity(self._broker.cluster_id, self._broker.topic_id(self._topic))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class MemoryFollower:
    """Reads one partition of the log on and on."""

    def __init__(self, broker: MemoryBroker, partition: int, start: int) -> None:
        self._broker = broker
        self._topic = broker.topics.log
        self._partition = partition
        self._next = start

    async def next(self, max_records: int, timeout: float) -> list[LogRecord]:  # noqa: ASYNC109 - the port's contract
        """Wait up to ``timeout`` seconds for records; [] at the time-out."""
        await asyncio.sleep(0)
        with self._broker.waiting([(self._topic, self._partition)]) as changed:
            try:
                async with asyncio.timeout(timeout):
                    while not (records := self._take(max_records)):
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                return []
        return records

    def _take(self, max_records: int) -> list[LogRecord]:
        begin, end = self._broker.bounds(self._topic, self._partition)
        if not begin <= self._next <= end:
            raise LogUnrecoverable(_not_there(self._topic, self._partition, self._next, begin, end))
        records = self._broker.slice(self._topic, self._partition, self._next, self._next + max_records)
        self._next += len(records)
        return [_record(stored) for stored in records]

    async def close(self) -> None:
        """Do nothing: nothing is held between calls."""


def _record(stored: Stored) -> LogRecord:
    key = None if stored.key is None else stored.key.decode()
    return LogRecord(stored.offset, key, dict(stored.headers).get(HEADER), stored.value or b"")


def _not_there(topic: str, partition: int, wanted: int, begin: int, end: int) -> str:
    return f"{topic}[{partition}]: offset {wanted} does not exist: the log begins at {begin} and ends at {end}"
