"""The object store in memory."""

from __future__ import annotations

import asyncio

from runfold.adapters.blobs.content import path_of, ref_of, verified
from runfold.core.payload import BlobRef


class MemoryBlobs:
    """Content-addressed bytes in a dictionary, which several "processes" of a test may share.

    Attributes:
        stored: sha256 in hex -> bytes.
    """

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes."""
        await asyncio.sleep(0)
        ref = ref_of(data)
        self.stored.setdefault(ref.sha256, bytes(data))
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back; the digest is checked."""
        await asyncio.sleep(0)
        return verified(ref, self.stored.get(ref.sha256), path_of(ref))
