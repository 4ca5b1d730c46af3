"""Payloads: bytes that an event carries inline, or refers to in the object store.

Equality is by digest, so a payload that moved to the object store is still the same payload. The fold never
looks inside one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class BlobRef:
    """A payload in the object store, at ``blobs/<first two hex digits>/<sha256>``.

    Attributes:
        sha256: Digest of the bytes, 64 hex digits.
        size: Length in bytes.
    """

    sha256: str
    size: int

    @property
    def digest(self) -> str:
        """The sha256 of the bytes, in hex."""
        return self.sha256

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Inline | BlobRef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """A payload whose bytes stand in the event itself."""

    data: bytes

    @property
    def digest(self) -> str:
        """The sha256 of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Inline | BlobRef) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)


Payload = Inline | BlobRef

# json.dumps makes an encoder for each call that asks for anything but the default.
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def same(left: Payload | None, right: Payload | None) -> bool:
    """Whether two payloads hold the same bytes, wherever they are stored."""
    if left is None or right is None:
        return left is right
    if type(left) is Inline and type(right) is Inline:
        return left.data == right.data
    return left.digest == right.digest


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Encode a JSON value in the one form that is hashed and compared: sorted keys, UTF-8, no NaN.

    Raises:
        ValueError: If the value holds NaN, an infinity, or half of a surrogate pair.
        TypeError: If it is not JSON.
    """
    return _CANONICAL.encode(value).encode()


def inline_json(value: Any) -> Inline:  # noqa: ANN401 - any JSON value
    """Put a small JSON value into an inline payload, in canonical form."""
    return Inline(canonical_json(value))
