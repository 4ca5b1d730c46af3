"""Object stores: which one a URL opens, and what goes wrong with files and servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from runfold.adapters.blobs import BlobUrlError, FileBlobs, open_blobs
from runfold.adapters.blobs.s3 import S3Blobs
from runfold.ports.blobs import BlobMissing, BlobsUnavailable


def files_below(folder: Path) -> list[Path]:
    """Give every file, however deep."""
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "folder",
        "/folder",
        "file://folder",
        "file:relative",
        "file:///",
        "s3://",
        "s3:///x",
        "gs://b/x",
        "s3://b?x=1",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    """The error repeats it and says what was expected."""
    with pytest.raises(BlobUrlError, match="RUNFOLD_BLOB_URL") as error:
        open_blobs(url)
    assert repr(url) in str(error.value)


async def test_a_file_url_opens_a_folder_whose_layout_is_the_contracts(tmp_path: Path) -> None:
    """``blobs/<first two digits>/<sha256>``; nothing temporary is left."""
    blobs = open_blobs(f"{tmp_path.as_uri()}/with%20space")
    ref = await blobs.put(b"x")
    assert files_below(tmp_path) == [tmp_path / "with space" / "blobs" / ref.sha256[:2] / ref.sha256]


async def test_a_damaged_file_is_told_from_the_right_one(tmp_path: Path) -> None:
    """Storing the bytes again mends a file of the wrong length."""
    blobs = FileBlobs(tmp_path)
    ref = await blobs.put(b"what was stored")
    (path,) = files_below(tmp_path)
    path.write_bytes(b"something else!")
    with pytest.raises(BlobMissing, match="with the digest"):
        await blobs.get(ref)
    path.write_bytes(b"half")
    await blobs.put(b"what was stored")
    assert await blobs.get(ref) == b"what was stored"


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    """The path is named."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BlobsUnavailable, match="file"):
        await FileBlobs(tmp_path / "file").put(b"x")


async def test_a_server_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """For writing, reading and asking; the key is named."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        blobs = S3Blobs("bucket", "prefix", {"endpoint_url": endpoint, "region_name": "us-east-1"})
        with pytest.raises(BlobsUnavailable, match=r"s3://bucket/prefix/blobs/2d/2d7"):
            await blobs.put(b"x")
        with pytest.raises(BlobsUnavailable):
            await blobs.check()
        await blobs.close()
