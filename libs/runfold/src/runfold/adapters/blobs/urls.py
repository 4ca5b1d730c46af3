"""From RUNFOLD_BLOB_URL to an object store."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from runfold.adapters.blobs.file import FileBlobs
from runfold.ports.blobs import Blobs

_FORMS: Final = "expected s3://bucket/prefix or file:///folder"


class BlobUrlError(ValueError):
    """RUNFOLD_BLOB_URL names nothing that can be opened."""


def open_blobs(url: str) -> Blobs:
    """Open the object store that a URL names; nothing is asked of it yet.

    Args:
        url: ``s3://bucket/prefix`` (boto3's own environment applies) or ``file:///folder``.

    Raises:
        BlobUrlError: Anything else; the message names the URL and what is wrong with it.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        message = f"RUNFOLD_BLOB_URL {url!r} has a query or a fragment: {_FORMS}"
        raise BlobUrlError(message)
    match parts.scheme:
        case "file":
            folder = Path(unquote(parts.path))
            if parts.netloc or not folder.is_absolute() or folder == Path("/"):
                message = f"RUNFOLD_BLOB_URL {url!r} names no absolute folder: {_FORMS}"
                raise BlobUrlError(message)
            return FileBlobs(folder)
        case "s3":
            if not parts.netloc:
                message = f"RUNFOLD_BLOB_URL {url!r} names no bucket: {_FORMS}"
                raise BlobUrlError(message)
            return _open_s3(url, parts.netloc, parts.path.strip("/"))
        case _:
            message = f"RUNFOLD_BLOB_URL {url!r} has the scheme {parts.scheme!r}: {_FORMS}"
            raise BlobUrlError(message)


def import_client(url: str) -> None:
    """Import what ``open_blobs`` of the same URL will need, if it is there.

    Packages whose modules import each other, as boto3's do, are safe to import from one thread only: so this comes
    before an author's module is imported in another one.
    """
    if urlsplit(url).scheme == "s3":
        with contextlib.suppress(ImportError):
            importlib.import_module("runfold.adapters.blobs.s3")


def _open_s3(url: str, bucket: str, prefix: str) -> Blobs:
    try:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - 0.2 s, and who uses a folder need not have it

        from runfold.adapters.blobs.s3 import S3Blobs  # noqa: PLC0415 - the same
    except ImportError as error:
        message = f"RUNFOLD_BLOB_URL {url!r} needs boto3: pip install 'runfold[s3]'"
        raise BlobUrlError(message) from error
    try:
        return S3Blobs(bucket, prefix)
    except (BotoCoreError, ValueError) as error:
        message = f"RUNFOLD_BLOB_URL {url!r}: boto3's environment is unusable: {error}"
        raise BlobUrlError(message) from error
