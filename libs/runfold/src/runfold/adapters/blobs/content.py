"""Naming bytes by their content, and checking that they are what their name says."""

from __future__ import annotations

import hashlib

from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobMissing


def ref_of(data: bytes) -> BlobRef:
    """Name bytes."""
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data))


def path_of(ref: BlobRef) -> str:
    """Give a blob's path below the store's root."""
    return f"blobs/{ref.sha256[:2]}/{ref.sha256}"


def verified(ref: BlobRef, data: bytes | None, where: str) -> bytes:
    """Give back bytes that are what ``ref`` names.

    Raises:
        BlobMissing: They are not there (None), or they have another digest.
    """
    if data is None:
        message = f"{where} does not exist ({ref.size} bytes)"
        raise BlobMissing(message)
    found = ref_of(data)
    if found.sha256 != ref.sha256:
        message = f"{where} should hold {ref.size} bytes, it holds {found.size} with the digest {found.sha256}"
        raise BlobMissing(message)
    return data
