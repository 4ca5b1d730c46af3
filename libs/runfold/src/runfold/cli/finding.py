"""What ``runfold check`` says of one thing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "note", "wrong", "unreachable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        status: ``note``: nothing is wrong, but a person may want to know.
        detail: What was found; ``mend``: what to do about it.
    """

    what: str
    status: Status
    detail: str
    mend: str | None = None

    def view(self) -> dict[str, Any]:
        """Give it as JSON."""
        return asdict(self)
