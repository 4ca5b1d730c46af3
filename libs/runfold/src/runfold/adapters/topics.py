"""The names of the six topics, and how large a record of ours may be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from runfold.ports.log import RecordTooLarge

# Kafka counts a record's own overhead too (about 70 bytes and what headers cost): the topics' limit is 1,048,588.
MAX_LOG_RECORD: Final = 1_000_000
# A forwarded or dead input is the original bytes, up to the limit of the input topics, plus headers of ours.
MAX_COPY_RECORD: Final = 1_250_000


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Full names of the topics under one prefix."""

    prefix: str = "runfold."

    @property
    def requests(self) -> str:
        """Who is allowed to start runs writes here."""
        return f"{self.prefix}requests"

    @property
    def approvals(self) -> str:
        """Approval systems write here."""
        return f"{self.prefix}approvals"

    @property
    def control(self) -> str:
        """Only our services write here."""
        return f"{self.prefix}control"

    @property
    def log(self) -> str:
        """Only step executors write here."""
        return f"{self.prefix}log"

    @property
    def notifications(self) -> str:
        """For the outside."""
        return f"{self.prefix}notifications"

    @property
    def dead(self) -> str:
        """Inputs that could not be accepted."""
        return f"{self.prefix}dead"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that an executor reads."""
        return (self.requests, self.approvals, self.control)

    @property
    def all(self) -> tuple[str, ...]:
        """All six."""
        return (*self.inputs, self.log, self.notifications, self.dead)


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
