"""The input topics of one partition (requests, approvals, control), read with plainly assigned consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from runfold.ports.log import LogBounds


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of an input topic, as it stands there.

    Attributes:
        topic: Its full name, prefix included.
        offset: Its own offset.
        timestamp_ms: Kafka's timestamp, milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


class InputReader(Protocol):
    """The inputs of one partition, from given positions on."""

    @property
    def skipped(self) -> Mapping[str, tuple[int, int]]:
        """Say what retention has deleted of what was asked for: topic -> (start, end) offsets."""
        ...

    async def next(self, max_records: int) -> list[InputRecord]:
        """Wait for records; give at least one, in the order of each topic; the topics in no particular order.

        Raises:
            ports.log.LogUnrecoverable: A topic ends before the next record to read.
        """
        ...

    async def close(self) -> None:
        """Stop reading."""
        ...


class Inputs(Protocol):
    """The input topics."""

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> InputReader:
        """Read each topic (full name) from its next offset on; a topic that is not named, from 0.

        Raises:
            ports.log.LogUnrecoverable: A topic ends before its next offset: records were lost, or it is another one.
        """
        ...

    async def fetch(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Read one record; None if retention has deleted it.

        Raises:
            ports.log.LogUnrecoverable: The topic ends before it.
        """
        ...

    async def bounds(self, topic: str, partition: int) -> LogBounds:
        """What exists of a topic now."""
        ...

    async def identities(self) -> Mapping[str, str]:
        """Say which topics these are: full name -> id (or the name where the broker tells none).

        One that was deleted and made again has another id.
        """
        ...
