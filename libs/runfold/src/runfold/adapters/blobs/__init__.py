"""The object store: on S3-compatible servers, or in a folder for development."""

from runfold.adapters.blobs.file import FileBlobs
from runfold.adapters.blobs.urls import BlobUrlError, import_client, open_blobs

__all__ = ["BlobUrlError", "FileBlobs", "import_client", "open_blobs"]
