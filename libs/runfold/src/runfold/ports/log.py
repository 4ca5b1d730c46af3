"""The event log: one append-only sequence of records per partition. Carries bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from runfold.core.quick import quick

MAX_RECORD: Final = 1_000_000
"""Bytes of the largest log record: key, header and value. The topic allows 1,048,588, Kafka's own overhead included."""


class AppendFailed(Exception):
    """An append failed or its outcome is unknown. The epoch is over: claim again and replay."""


class RecordTooLarge(Exception):
    """A record is above the limit and was not produced. The caller has a defect or must offload the payload."""


class LogUnrecoverable(Exception):
    """The log is not what was recorded of it (truncated, trimmed too far, another one). Stop; never guess."""


class LogUnavailable(Exception):
    """Kafka did not answer in time: wait and try again. Any awaited method of ``Log`` and ``Inputs`` may raise it."""


@quick
@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record.

    Attributes:
        offset: Its own offset.
        key: The run id; None for a claim or a settled input.
        head: The bytes of header ``rf``; None if it is missing.
        value: Avro single-object bytes.
    """

    offset: int
    key: str | None
    head: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class LogBounds:
    """``begin``: offset of the first record that exists; ``end``: that of the next one to be appended."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log this is: Kafka's cluster id, and the topic's id (or its name where the broker tells none)."""

    cluster_id: str
    topic_id: str


OnAck = Callable[[int | AppendFailed], None]


class LogFollower(Protocol):
    """Reads one partition on and on."""

    async def next(self, max_records: int, timeout: float) -> list[LogRecord]:  # noqa: ASYNC109 - [] answers it
        """Wait up to ``timeout`` seconds for records; give those that are there, in order; [] at the time-out.

        Raises:
            LogUnrecoverable: The next record to read no longer exists, or never did.
        """
        ...

    async def close(self) -> None:
        """Stop reading."""
        ...


class ReadableLog(Protocol):
    """The log topic, for who only reads what is there."""

    async def bounds(self, partition: int) -> LogBounds:
        """What exists now; ``end`` covers everything acknowledged before the call."""
        ...

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read [start, min(end, start + max_records)), in order; may give fewer, but at least one if start < end.

        The caller passes an ``end`` that it knows to exist; [] only when start >= end.

        Raises:
            LogUnrecoverable: ``start`` is below what exists, or the log ends before it.
        """
        ...

    async def identity(self) -> LogIdentity:
        """Which log this is."""
        ...


class Log(ReadableLog, Protocol):
    """The log topic."""

    def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
        """Append one record without waiting.

        ``on_ack`` is called on the event loop, once per append, never from within it: with the record's offset when it
        is durable, in the order of the appends of a partition, or with ``AppendFailed`` when that is not known, which
        may come before acknowledgements of earlier ones. Successful acknowledgements of a single writer are
        contiguous: a gap means that somebody else has written.

        Raises:
            RecordTooLarge: Nothing was produced, ``on_ack`` will not be called.
        """
        ...

    async def follow(self, partition: int, start: int) -> LogFollower:
        """Read from ``start`` on, which may be the end of the log."""
        ...
