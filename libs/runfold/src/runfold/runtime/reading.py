"""Reading a stretch of the log once: opening it costs more than reading it, and a take-over needs it three times."""

from __future__ import annotations

from typing import Final

from runfold.ports.log import LogBounds, LogIdentity, LogRecord, ReadableLog
from runfold.ports.store import PartitionRow

READ_BATCH: Final = 2000
_KEPT: Final = 20_000
"""Records of the longest stretch that is kept in memory."""


class ReadAhead:
    """A partition's log, of which one stretch was read already: that is given from memory, the rest is read.

    Attributes:
        keys: Runs that have records behind what was applied.
    """

    def __init__(self, log: ReadableLog, partition: int) -> None:
        self.keys: set[str] = set()
        self._log = log
        self._partition = partition
        self._records: list[LogRecord] = []

    async def load(self, row: PartitionRow | None, end: int) -> None:
        """Read what a take-over needs: from where the replay starts up to ``end``, the record applied last included.

        Where that is long, only what stands behind it is read, for its keys. A log that begins later, or ends before,
        is found out afterwards.
        """
        applied = 0 if row is None else row.applied
        last = applied if row is None or row.tail is None else row.tail[0]
        start = last if row is None else min(row.replay_from, last)
        is_kept = end - start <= _KEPT
        start = max(start if is_kept else last, (await self._log.bounds(self._partition)).begin)
        while start < end:
            records = await self._log.read(self._partition, start, end, READ_BATCH)
            self.keys.update(record.key for record in records if record.key is not None and record.offset >= applied)
            if is_kept:
                self._records += records
            start = records[-1].offset + 1

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """See ``Log.read``."""
        if self._records and partition == self._partition:
            index = start - self._records[0].offset  # offsets have no holes: no transactions, no compaction
            if 0 <= index < len(self._records):
                return self._records[index : index + min(end - start, max_records)]
        return await self._log.read(partition, start, end, max_records)

    async def bounds(self, partition: int) -> LogBounds:
        """See ``Log.bounds``."""
        return await self._log.bounds(partition)

    async def identity(self) -> LogIdentity:
        """See ``Log.identity``."""
        return await self._log.identity()
