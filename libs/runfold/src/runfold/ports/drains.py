"""Marks on partitions that have left their owner's hands and are still being drained by it.

They are advice to the next owner, which waits for their end before it claims. Safety never rests on them: a claim that
comes too early ends the draining, as a crash would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class DrainsUnavailable(Exception):
    """The marks could not be read or written in time."""


class Drains(Protocol):
    """The marks of one installation, shared by all its executors."""

    async def mark(self, partitions: Sequence[int]) -> None:
        """Say that these are being drained. Said again and again while they are: each time another mark stands there.

        Raises:
            DrainsUnavailable: Nobody knows whether it stands.
        """
        ...

    async def clear(self, partitions: Sequence[int]) -> None:
        """Say that these are not being drained any more.

        Raises:
            DrainsUnavailable: Nobody knows whether the marks are gone.
        """
        ...

    async def marks(self, partitions: Sequence[int]) -> dict[int, str]:
        """Give the marks that stand on some partitions. One that stays the same has nobody behind it any more.

        Raises:
            DrainsUnavailable: No answer.
        """
        ...
