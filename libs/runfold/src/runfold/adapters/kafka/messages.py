"""Reading a message of the client, whose every part may be None by its type."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Message


def number(value: int | None) -> int:
    """Give a partition or an offset; -1 where the client has none."""
    return -1 if value is None else value


def header_pairs(message: Message) -> list[tuple[str, bytes | None]]:
    """Give the headers in their order; names may repeat."""
    return [(name, _encoded(data)) for name, data in _headers(message)]


def header(message: Message, wanted: str) -> bytes | None:
    """Give the header of a name, of several the last; the others are not looked at."""
    found: bytes | str | None = None
    for name, data in _headers(message):
        if name == wanted:
            found = data
    return _encoded(found)


def _headers(message: Message) -> Iterable[tuple[str, bytes | str | None]]:
    headers = message.headers() or ()
    return headers.items() if isinstance(headers, dict) else headers


def _encoded(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
