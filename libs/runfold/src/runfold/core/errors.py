"""What the core raises; one type per reaction of the caller."""

from __future__ import annotations


class IllegalTransition(Exception):
    """An event does not fit the state it meets. Nothing was changed; the caller parks the run."""


class UnknownRecord(Exception):
    """A record's schema, event type or payload format is not known to this code. Never skipped: the run is parked."""


class InvalidRunId(ValueError):
    """A run id that the contract does not allow. The input goes to ``dead``."""
