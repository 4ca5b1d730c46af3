"""A record of the dead topic, shown to people and programs."""

from __future__ import annotations

from typing import Any

from runfold.codec.events_json import timestamp
from runfold.codec.strict_json import BadJson, loads
from runfold.ports.inputs import InputRecord


def view(record: InputRecord) -> dict[str, Any]:
    """Show a dead input: why, where it stood, and what it was; ``original``: why the bytes are not there, if so."""
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    return {
        "reason": headers.get("reason"),
        "detail": headers.get("detail"),
        "topic": headers.get("topic"),
        "partition": _number(headers.get("partition")),
        "offset": _number(headers.get("offset")),
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "value": _value(record.value),
        "original": headers.get("original"),
        "at": timestamp(record.timestamp_ms),
        "dead_partition": record.partition,
        "dead_offset": record.offset,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _value(data: bytes | None) -> Any:  # noqa: ANN401 - any JSON value
    """Show JSON as it is, and anything else as text."""
    if data is None:
        return None
    try:
        return loads(data)
    except BadJson:
        return data.decode(errors="backslashreplace")
