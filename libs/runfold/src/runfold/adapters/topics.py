"""How large a record of ours may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from runfold.ports.log import MAX_RECORD, RecordTooLarge

# Kafka counts a record's own overhead too (about 70 bytes and what headers cost): the topics' limit is 1,048,588.
MAX_LOG_RECORD: Final = MAX_RECORD
# A forwarded or dead input is the original bytes, up to the limit of the input topics, plus headers of ours.
MAX_COPY_RECORD: Final = 1_250_000


def check_size(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]], limit: int, topic: str
) -> None:
    """Check a record before it is produced.

    Raises:
        RecordTooLarge: Key, value and headers together are above ``limit`` bytes.
    """
    size = len(key or b"") + len(value or b"") + sum(len(name) + len(data) for name, data in headers)
    if size > limit:
        message = f"a record for {topic} has {size} bytes, {limit} are allowed: offload its payload"
        raise RecordTooLarge(message)
