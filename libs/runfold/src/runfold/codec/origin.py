"""Where a forwarded input came from: the header of the copy in ``control``.

A record in the wrong partition, or one that met the wrong owner, is copied to ``control`` as it is: value, key and
headers, plus ``rf-origin``. Its default id is that header's text, so that the copy and any other copy are one input.
"""

from __future__ import annotations

import re

from runfold.core.events import Cause

ORIGIN_HEADER = "rf-origin"
_ORIGIN = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>[0-9]{1,10})/(?P<offset>[0-9]{1,19})", re.ASCII)


class BadOrigin(ValueError):
    """The header ``rf-origin`` is not ``topic/partition/offset``. The input goes to ``dead``."""


def format_origin(topic: str, partition: int, offset: int) -> bytes:
    """Give the header's bytes; ``topic`` is the full name, prefix included."""
    return f"{topic}/{partition}/{offset}".encode()


def parse_origin(data: bytes) -> Cause:
    """Read the header.

    Returns:
        Topic, partition and offset of the original; ``id`` is the header's own text, the default id of the copy.

    Raises:
        BadOrigin: It is malformed.
    """
    text = data.decode("ascii", errors="replace")
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise BadOrigin(f"header {ORIGIN_HEADER} is not topic/partition/offset: {text[:300]!r}")
    return Cause(match["topic"], int(match["partition"]), int(match["offset"]), text)
