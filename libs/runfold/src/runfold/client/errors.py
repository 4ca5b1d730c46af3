"""What the client raises; one type per reaction of the caller."""

from __future__ import annotations


class RunNotFoundError(Exception):
    """No run of that id exists, neither in Postgres nor in the log behind it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is no run {run_id!r}: none was started under this id, or no executor has taken it up yet; "
            "`runfold list` shows those that exist, `runfold check` whether the settings fit them"
        )
        self.run_id = run_id


class NoSuchEventError(Exception):
    """The run has fewer events than asked for."""


class RunFailedError(Exception):
    """The run ended without an output; ``error`` says why."""

    def __init__(self, run_id: str, error: str) -> None:
        super().__init__(f"run {run_id} failed: {error}")
        self.run_id = run_id
        self.error = error


class RunCancelledError(Exception):
    """The run was cancelled; ``open_keys``: idempotency keys whose outcome nobody knows."""

    def __init__(self, run_id: str, reason: str, open_keys: tuple[str, ...]) -> None:
        super().__init__(f"run {run_id} was cancelled: {reason}")
        self.run_id = run_id
        self.reason = reason
        self.open_keys = open_keys
