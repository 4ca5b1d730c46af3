"""A stretch of the log that a take-over reads once."""

from __future__ import annotations

from dataclasses import replace

from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.log import MemoryLog
from runfold.ports.log import LogRecord
from runfold.ports.store import PartitionRow
from runfold.runtime.reading import ReadAhead

ROW = replace(PartitionRow.empty(0, "memory", "runfold.log"), applied=6, replay_from=3, tail=(5, "digest"))


class CountingLog(MemoryLog):
    """Remembers what was read of it."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.reads: list[tuple[int, int]] = []

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read, and remember."""
        self.reads.append((start, end))
        return await super().read(partition, start, end, max_records)


def log_of(count: int, begin: int = 0) -> CountingLog:
    broker = MemoryBroker(1)
    for number in range(count):
        broker.append("runfold.log", 0, f"r{number}".encode(), b"x", (("rf", b"h"),))
    broker.delete_before("runfold.log", 0, begin)
    return CountingLog(broker)


async def test_everything_that_a_take_over_needs_is_read_once() -> None:
    """From the replay's start to the claim; what is asked for again comes from memory, in the same pieces."""
    log = log_of(10)
    ahead = ReadAhead(log, 0)
    await ahead.load(ROW, 10)
    assert log.reads == [(3, 10)]
    assert ahead.keys == {"r6", "r7", "r8", "r9"}
    assert [record.offset for record in await ahead.read(0, 5, 6, 1)] == [5]
    assert [record.offset for record in await ahead.read(0, 3, 9, 4)] == [3, 4, 5, 6]
    assert [record.offset for record in await ahead.read(0, 7, 10, 2000)] == [7, 8, 9]
    assert log.reads == [(3, 10)]


async def test_what_is_not_in_memory_is_read() -> None:
    """A run that is folded again from further back."""
    log = log_of(10)
    ahead = ReadAhead(log, 0)
    await ahead.load(ROW, 10)
    assert [record.offset for record in await ahead.read(0, 1, 3, 2000)] == [1, 2]
    assert log.reads[1:] == [(1, 3)]


async def test_a_log_that_begins_later_is_read_from_its_beginning() -> None:
    log = log_of(10, begin=7)
    ahead = ReadAhead(log, 0)
    await ahead.load(ROW, 10)
    assert log.reads == [(7, 10)]
    assert ahead.keys == {"r7", "r8", "r9"}


async def test_of_a_long_stretch_only_what_is_behind_the_applied_is_read() -> None:
    """It is not kept: memory is for runs."""
    log = log_of(10)
    ahead = ReadAhead(log, 0)
    await ahead.load(replace(ROW, replay_from=-30_000), 10)
    assert log.reads == [(5, 10)]
    assert ahead.keys == {"r6", "r7", "r8", "r9"}
    await ahead.read(0, 6, 10, 2000)
    assert log.reads[1:] == [(6, 10)]
