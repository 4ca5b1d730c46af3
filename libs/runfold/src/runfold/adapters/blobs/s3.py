"""The object store on S3 and what is compatible with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from runfold.adapters.blobs.content import path_of, ref_of, verified
from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobsUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_THREADS: Final = 8
_TIMEOUT_S: Final = 5
_ATTEMPTS: Final = 3
# Somebody has stored the same bytes, or is about to: 412 and 409 of a conditional write.
_THERE: Final = frozenset({"PreconditionFailed", "412"})
_RACING: Final = frozenset({"ConditionalRequestConflict", "409", "OperationAborted"})
_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})


class S3Blobs:
    """Blobs as objects.

    Args:
        bucket: An existing bucket.
        prefix: Of every key, without slashes at its ends; "" for none.
        client: Arguments for boto3's client; whatever is not given comes from boto3's own environment.

    Raises:
        botocore.exceptions.BotoCoreError: boto3's environment is unusable (no region, for example).
    """

    def __init__(self, bucket: str, prefix: str = "", client: Mapping[str, Any] | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        config = Config(
            connect_timeout=_TIMEOUT_S,
            read_timeout=_TIMEOUT_S,
            max_pool_connections=_THREADS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        self._client: S3Client = boto3.session.Session().client("s3", config=config, **(client or {}))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="runfold-s3")

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes durably, unless they are there."""
        ref = ref_of(data)
        await self._call(lambda: self._put(path_of(ref), data), path_of(ref))
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back; the digest is checked."""
        data = await self._call(lambda: self._get(path_of(ref)), path_of(ref))
        return verified(ref, data, self._where(path_of(ref)))

    async def check(self) -> None:
        """Ask for the bucket.

        Raises:
            BlobsUnavailable: It cannot be reached, does not exist, or may not be used; the message says which.
        """
        await self._call(lambda: self._client.head_bucket(Bucket=self._bucket), "")

    async def close(self) -> None:
        """Wait for what is under way, close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def _call(self, act: Callable[[], T], path: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, act)
        except (BotoCoreError, ClientError) as error:
            message = f"{self._where(path)}: {error}"
            raise BlobsUnavailable(message) from error

    def _put(self, path: str, data: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + path, Body=data, IfNoneMatch="*")
        except ClientError as error:
            code = _code(error)
            # After a conflict nothing is known to be stored; the same bytes without a condition do no harm.
            if code in _RACING:
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + path, Body=data)
            elif code not in _THERE:
                raise

    def _get(self, path: str) -> bytes | None:
        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._prefix + path)["Body"].read()
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise

    def _where(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
