"""The object store in memory."""

from __future__ import annotations

import asyncio
import hashlib

from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobMissing


class MemoryBlobs:
    """Content-addressed bytes in a dictionary, which may be shared by several "processes" of a test.

    Attributes:
        stored: sha256 in hex -> bytes.
    """

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes."""
        await asyncio.sleep(0)
        ref = BlobRef(hashlib.sha256(data).hexdigest(), len(data))
        self.stored.setdefault(ref.sha256, bytes(data))
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back; the digest is checked."""
        await asyncio.sleep(0)
        return verified(ref, self.stored.get(ref.sha256))


def verified(ref: BlobRef, data: bytes | None) -> bytes:
    """Give back bytes that are what ``ref`` names.

    Raises:
        BlobMissing: They are not there (None), or they have another digest.
    """
    if data is None:
        message = f"blob {ref.sha256} ({ref.size} bytes) does not exist"
        raise BlobMissing(message)
    digest = hashlib.sha256(data).hexdigest()
    if digest != ref.sha256:
        message = f"blob {ref.sha256} holds {len(data)} bytes with another digest, {digest}"
        raise BlobMissing(message)
    return data
