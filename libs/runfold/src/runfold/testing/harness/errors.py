"""What the harness raises; one type per reaction of the author."""

from __future__ import annotations

from typing import Any

from runfold.client.errors import RunCancelledError, RunFailedError, RunNotFoundError

__all__ = [
    "CrashNeverHappenedError",
    "InputRefusedError",
    "RunCancelledError",
    "RunFailedError",
    "RunNotFoundError",
    "RunWaitsError",
]

Json = Any


class RunWaitsError(Exception):
    """The run goes on only when somebody does something; ``waits`` are the objects that ``waits()`` gives."""

    def __init__(self, run_id: str, waits: list[Json]) -> None:
        self.run_id = run_id
        self.waits = waits
        self.reasons = tuple(wait["reason"] for wait in waits)
        super().__init__(f"run {run_id} does not go on by itself: {'; '.join(_say(wait) for wait in waits)}")


class InputRefusedError(Exception):
    """An input was not accepted: it would have gone to the topic ``dead``; ``reason`` as there."""

    def __init__(self, what: str, run_id: str, reason: str, detail: str | None) -> None:
        super().__init__(f"{what} of run {run_id} was refused ({reason}){f': {detail}' if detail else ''}")
        self.run_id = run_id
        self.reason = reason
        self.detail = detail


class CrashNeverHappenedError(Exception):
    """A crash was armed, and the block has ended without it."""


def _say(wait: Json) -> str:
    said = f"{wait['reason']} ({wait['wait_id']})"
    detail = wait.get("detail") or {}
    match wait["reason"]:
        case "awaiting_approval":
            return f"{said} of {wait['tool']}({_arguments(wait)}): harness.approve or harness.reject"
        case "indeterminate":
            return f"{said}: {_doubt(wait, detail)}; say it: harness.resolve"
        case "version_mismatch":
            return f"{said}: {_about(detail)}: harness.resume(..., accept_version=True), or deploy what it started with"
        case "unknown_agent":
            return f"{said}: harness.deploy an app that has the agent"
        case _:
            return f"{said}: {_about(detail)}: harness.resume"


def _doubt(wait: Json, detail: Json) -> str:
    attempt = f", attempt {detail['attempt']}" if "attempt" in detail else ""
    reason = f" ({detail['error']})" if detail.get("error") else ""
    call = f"{wait['tool']}({_arguments(wait)})"
    return f"nobody knows whether {call}, step {wait['step']}{attempt}, has happened{reason}"


def _arguments(wait: Json) -> str:
    arguments = wait.get("arguments")
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items()) if isinstance(arguments, dict) else "…"


def _about(detail: Json) -> str:
    if not isinstance(detail, dict):
        return repr(detail)
    if "error" in detail and "tool" not in detail:
        return str(detail["error"])
    return ", ".join(f"{key}={value!r}" for key, value in detail.items() if value is not None)
