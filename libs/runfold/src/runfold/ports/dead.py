"""The dead topic: inputs that could not be accepted, kept for a person to look at."""

from __future__ import annotations

from typing import Protocol

from runfold.ports.inputs import InputRecord


class DeadLetters(Protocol):
    """What stands in the dead topic.

    A record is the refused input's own bytes, key and headers, and over them headers of ours (UTF-8): ``reason``,
    ``topic``, ``partition``, ``offset``, ``detail``, and ``original`` where the bytes could not be copied.
    """

    async def read(self) -> list[InputRecord]:
        """Give every record that stood there when it was called, by Kafka's timestamp, oldest first.

        ``topic``, ``partition`` and ``offset`` of a record are its place in the dead topic.

        Raises:
            ports.log.LogUnavailable: Kafka did not answer: try again.
        """
        ...
