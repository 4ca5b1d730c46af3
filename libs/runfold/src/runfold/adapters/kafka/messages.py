"""Reading a message of the client, whose every part may be None by its type."""

from __future__ import annotations

from confluent_kafka import Message


def number(value: int | None) -> int:
    """Give a partition or an offset; -1 where the client has none."""
    return -1 if value is None else value


def header_pairs(message: Message) -> list[tuple[str, bytes | None]]:
    """Give the headers in their order; names may repeat."""
    headers = message.headers()
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, data.encode() if isinstance(data, str) else data) for name, data in pairs]
