"""Numbers of the reconciler, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from runfold.core.policy import GRACE_S
from runfold.ports.topics import Topics


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """Names and numbers; times in seconds.

    Attributes:
        holder: Who leases and who says so in a verdict: host name and pid. No other process has it.
        grace_s: "Absent" is believed only the call's time-out plus this after the row's insertion.
        scan_s: Pause between two scans.
        concurrency: Lookups at the same time.
        lookup_timeout_s: For one lookup, with reading what it needs.
        lease_s: How long nobody else looks at a call that is being looked up; longer than a lookup may take.
        repeat_s: After a verdict: when to look again, if the call is still open then.
        drain_s: How long a stop waits for the lookups in hand.
    """

    holder: str
    topics: Topics = field(default_factory=Topics)
    grace_s: float = GRACE_S
    scan_s: float = 1.0
    concurrency: int = 16
    lookup_timeout_s: float = 30.0
    lease_s: float = 60.0
    repeat_s: float = 15.0
    drain_s: float = 5.0

    def __post_init__(self) -> None:
        if self.lease_s <= self.lookup_timeout_s:
            message = (
                f"lease_s ({self.lease_s:g}) must be longer than lookup_timeout_s ({self.lookup_timeout_s:g}): "
                "two reconcilers would ask about one call at once"
            )
            raise ValueError(message)


class ReconcilerMetrics(Protocol):
    """Hooks; all return at once and never raise."""

    def looked_up(self, answer: str, seconds: float) -> None:
        """A call was examined: ``found``, ``absent``, ``indeterminate``, ``later`` or ``failed``."""

    def unreachable(self, what: str) -> None:
        """``store``, ``publisher`` or ``blobs`` did not answer."""


class NoMetrics:
    """Counts nothing."""

    def looked_up(self, answer: str, seconds: float) -> None:
        """Do nothing."""

    def unreachable(self, what: str) -> None:
        """Do nothing."""
