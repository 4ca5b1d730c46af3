"""The names of the topics of one installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topics:
    """Full topic names, made from ``RUNFOLD_TOPIC_PREFIX``; consumer groups are named under the same prefix."""

    prefix: str = "runfold."

    @property
    def requests(self) -> str:
        """What starts, cancels, resumes and resolves runs; written by anyone who may."""
        return self.prefix + "requests"

    @property
    def approvals(self) -> str:
        """Decisions about open gates; written by approval systems."""
        return self.prefix + "approvals"

    @property
    def control(self) -> str:
        """Verdicts and forwarded inputs; written by our services only."""
        return self.prefix + "control"

    @property
    def log(self) -> str:
        """The event log; written by step executors only."""
        return self.prefix + "log"

    @property
    def notifications(self) -> str:
        """JSON for the outside: a wait opened, a run ended."""
        return self.prefix + "notifications"

    @property
    def dead(self) -> str:
        """Inputs that cannot be accepted; written by the compactor."""
        return self.prefix + "dead"

    @property
    def inputs(self) -> tuple[str, str, str]:
        """The topics that step executors read."""
        return (self.requests, self.approvals, self.control)

    @property
    def all(self) -> tuple[str, ...]:
        """All of them, as ``runfold setup`` makes them."""
        return (*self.inputs, self.log, self.notifications, self.dead)

    def group(self, service: str) -> str:
        """The consumer group of a service, e.g. ``runfold.step-executor``."""
        return self.prefix + service
