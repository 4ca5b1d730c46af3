"""What ``runfold check`` looks at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from runfold.service.settings import ClientSettings, SettingsError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        status: ``note``: nothing is wrong, but a person may want to know.
        detail: What was found; ``mend``: what to do about it.
    """

    what: str
    status: Literal["ok", "note", "wrong", "unreachable"]
    detail: str
    mend: str | None = None

    def view(self) -> dict[str, Any]:
        """Give it as JSON."""
        return asdict(self)


def wrong_settings(error: SettingsError) -> list[Finding]:
    """Give a finding for each problem of the settings."""
    return [
        Finding(problem.variable, "wrong", problem.message, f"set {problem.variable}, or unset it")
        for problem in error.problems
    ]


async def findings(settings: ClientSettings) -> AsyncIterator[Finding]:
    yield Finding("settings", "ok", "all readable")


async def set_up(settings: ClientSettings) -> AsyncIterator[str]:
    yield ""
