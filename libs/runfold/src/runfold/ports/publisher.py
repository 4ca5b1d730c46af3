"""Records for topics other than the log: forwarded and dead inputs, verdicts, notifications, what clients send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class PublishFailed(Exception):
    """A record was not acknowledged, or its outcome is unknown: publish it again, receivers tolerate duplicates."""


@dataclass(frozen=True, slots=True)
class Published:
    """Where a record stands now."""

    topic: str
    partition: int
    offset: int


class Publisher(Protocol):
    """Produces and waits for the acknowledgement."""

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Produce one record; ``partition`` None: by Java's default partitioner over the key.

        Raises:
            PublishFailed: See there; the message names the topic and what Kafka said.
            ports.log.RecordTooLarge: It is above the limit and was not produced; trying again does not help.
        """
        ...
