"""Payloads above the inline limit go to the object store, before the event that refers to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from runfold.core.payload import BlobRef, Inline, Payload
from runfold.ports.blobs import Blobs, BlobsUnavailable
from runfold.ports.clock import Chance
from runfold.runtime.persist import persist

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

# Of several payloads in one record, so that the record stays far below the broker's limit.
_RECORD_BUDGET = 262_144
_SMALL = 1024


class Payloads:
    """Seals bytes into payloads and reads them back; waits and tries again while the object store is away.

    Args:
        inline_limit: Bytes above which a payload goes to the object store.
    """

    def __init__(self, blobs: Blobs, chance: Chance, inline_limit: int) -> None:
        self._blobs = blobs
        self._chance = chance
        self._inline_limit = inline_limit

    async def seal(self, data: bytes) -> Payload:
        """Make a payload of bytes; when it is returned, the bytes are durable or inline."""
        return Inline(data) if len(data) <= self._inline_limit else await self._put(data)

    async def seal_all(self, items: Sequence[bytes]) -> list[Payload]:
        """Make the payloads of one record: many middling ones together must not make it too large."""
        crowded = sum(len(data) for data in items if len(data) <= self._inline_limit) > _RECORD_BUDGET
        limit = min(_SMALL, self._inline_limit) if crowded else self._inline_limit
        return [Inline(data) if len(data) <= limit else await self._put(data) for data in items]

    async def read(self, payload: Payload) -> bytes:
        """Give a payload's bytes.

        Raises:
            BlobMissing: See ports.blobs.
        """
        if isinstance(payload, Inline):
            return payload.data
        return await self._persist(lambda: self._blobs.get(payload), "read", payload.sha256)

    async def _put(self, data: bytes) -> BlobRef:
        ref: BlobRef = await self._persist(lambda: self._blobs.put(data), "write", f"{len(data)} bytes")
        return ref

    async def _persist(self, operation: Callable[[], Awaitable[_T]], what: str, subject: str) -> _T:
        def tell(error: Exception, failures: int) -> None:
            _log.warning("object_store_away", operation=what, subject=subject, error=str(error), failures=failures)

        return await persist(operation, BlobsUnavailable, self._chance, tell)
