"""The object store in a folder, for development: one machine, no replication."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from runfold.adapters.blobs.content import path_of, ref_of, verified
from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobsUnavailable


class FileBlobs:
    """Blobs as files; several processes may share the folder.

    Args:
        folder: The root; made when the first blob is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes durably: synced, then renamed into place, then the folder synced."""
        ref = ref_of(data)
        path = self._folder / path_of(ref)
        try:
            await asyncio.to_thread(_write, path, data)
        except OSError as error:
            message = f"{path} could not be written: {error}"
            raise BlobsUnavailable(message) from error
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back; the digest is checked."""
        path = self._folder / path_of(ref)
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            data = None
        except OSError as error:
            message = f"{path} could not be read: {error}"
            raise BlobsUnavailable(message) from error
        return verified(ref, data, str(path))

    async def close(self) -> None:
        """Do nothing: no file stays open."""


def _write(path: Path, data: bytes) -> None:
    # A file of the right name and size is complete, since it came by a rename. Its folder entry may not be synced
    # yet by whoever is writing it, so it is synced here too.
    if not (path.exists() and path.stat().st_size == len(data)):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
