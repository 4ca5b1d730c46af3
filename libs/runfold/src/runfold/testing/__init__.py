"""For the tests of agents: ``ScriptedModel``, ``Harness`` and ``crash_everywhere``; see docs/testing.md.

What is exported is imported when it is first asked for: an app with a scripted model does not load the harness.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runfold.testing.harness.crashing import crash_everywhere
    from runfold.testing.harness.errors import CrashNeverHappenedError, InputRefusedError, RunWaitsError
    from runfold.testing.harness.findings import CrashFindingsError, Finding, Report
    from runfold.testing.harness.harness import Attempt, Harness
    from runfold.testing.harness.journal import Call
    from runfold.testing.harness.loop import run
    from runfold.testing.models import ScriptedModel

__all__ = [
    "Attempt",
    "Call",
    "CrashFindingsError",
    "CrashNeverHappenedError",
    "Finding",
    "Harness",
    "InputRefusedError",
    "Report",
    "RunWaitsError",
    "ScriptedModel",
    "crash_everywhere",
    "run",
]

_HOMES = {
    "Attempt": "runfold.testing.harness.harness",
    "Call": "runfold.testing.harness.journal",
    "CrashFindingsError": "runfold.testing.harness.findings",
    "CrashNeverHappenedError": "runfold.testing.harness.errors",
    "Finding": "runfold.testing.harness.findings",
    "Harness": "runfold.testing.harness.harness",
    "InputRefusedError": "runfold.testing.harness.errors",
    "Report": "runfold.testing.harness.findings",
    "RunWaitsError": "runfold.testing.harness.errors",
    "ScriptedModel": "runfold.testing.models",
    "crash_everywhere": "runfold.testing.harness.crashing",
    "run": "runfold.testing.harness.loop",
}


def __getattr__(name: str) -> object:
    """Import an exported name when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List what is exported."""
    return sorted(__all__)
