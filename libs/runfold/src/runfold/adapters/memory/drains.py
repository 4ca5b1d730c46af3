"""Drain marks in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


class MemoryDrains:
    """See ``ports.drains``; one object is shared by all "processes" of a test."""

    def __init__(self) -> None:
        self._marks: dict[int, str] = {}
        self._count = itertools.count()

    async def mark(self, partitions: Sequence[int]) -> None:
        """Say that these are being drained."""
        self._marks.update(dict.fromkeys(partitions, str(next(self._count))))

    async def clear(self, partitions: Sequence[int]) -> None:
        """Say that these are not being drained any more."""
        for partition in partitions:
            self._marks.pop(partition, None)

    async def marks(self, partitions: Sequence[int]) -> dict[int, str]:
        """Give the marks that stand on some partitions."""
        return {partition: self._marks[partition] for partition in partitions if partition in self._marks}
