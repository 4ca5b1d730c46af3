"""The contract of ``ports.blobs``, in memory, in a folder and on an S3-compatible server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runfold.adapters.blobs import open_blobs
from runfold.adapters.memory import MemoryBlobs
from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobMissing, Blobs


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.integration)])
async def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Blobs]:
    """Give an object store; that of another test may have the same blobs."""
    if request.param == "memory":
        yield MemoryBlobs()
        return
    url = tmp_path.as_uri()
    if request.param == "s3":
        environment: dict[str, str] = request.getfixturevalue("s3_env")
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        url = f"{environment['RUNFOLD_BLOB_URL']}/{request.getfixturevalue('topic_prefix')}"
    yield open_blobs(url)


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"x" * 5_000_000], ids=["empty", "binary", "large"])
async def test_bytes_come_back_under_their_digest(blobs: Blobs, data: bytes) -> None:
    """The reference is made of the content alone."""
    ref = await blobs.put(data)
    assert ref == BlobRef(hashlib.sha256(data).hexdigest(), len(data))
    assert await blobs.get(ref) == data


async def test_storing_the_same_bytes_again_is_fine(blobs: Blobs) -> None:
    """Also at once, as two processes with the same payload do."""
    refs = await asyncio.gather(*(blobs.put(b"the same") for _ in range(8)))
    assert len(set(refs)) == 1
    assert await blobs.put(b"the same") == refs[0]
    assert await blobs.get(refs[0]) == b"the same"


async def test_a_blob_that_does_not_exist_is_missing(blobs: Blobs) -> None:
    """Its name is in the error."""
    ref = BlobRef(hashlib.sha256(b"never stored").hexdigest(), 12)
    with pytest.raises(BlobMissing, match=ref.sha256):
        await blobs.get(ref)
