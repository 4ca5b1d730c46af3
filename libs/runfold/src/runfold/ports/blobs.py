"""The object store: immutable payloads, addressed by their content."""

from __future__ import annotations

from typing import Protocol

from runfold.core.payload import BlobRef


class BlobsUnavailable(Exception):
    """The object store could not be reached: wait and try again."""


class BlobMissing(Exception):
    """A blob that an event refers to does not exist, or its bytes have another digest. The run is stopped, visibly."""


class Blobs(Protocol):
    """Content-addressed storage at ``blobs/<first two hex digits>/<sha256>``."""

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes durably; storing the same bytes again is fine.

        Raises:
            BlobsUnavailable: Nothing is known to be stored.
        """
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back; the digest is checked.

        Raises:
            BlobsUnavailable: Try again later.
            BlobMissing: It is not there, or it is not what was stored.
        """
        ...
