"""Runfold: a durable runtime for LLM agents on Kafka, Postgres and an object store.

What an agent author writes is exported here, lazily: ``import runfold`` reads no other package, and a service that
needs no agents does not install pydantic-ai.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runfold.client import Client
    from runfold.core.events import Recovery
    from runfold.sdk.agent import Agent
    from runfold.sdk.app import App
    from runfold.sdk.context import ToolContext
    from runfold.sdk.tools import tool
    from runfold.sdk.values import ABSENT, Absent, Approval, Indeterminate, Result

__all__ = [
    "ABSENT",
    "Absent",
    "Agent",
    "App",
    "Approval",
    "Client",
    "Indeterminate",
    "Recovery",
    "Result",
    "ToolContext",
    "tool",
]

_HOMES = {
    "ABSENT": "runfold.sdk.values",
    "Absent": "runfold.sdk.values",
    "Agent": "runfold.sdk.agent",
    "App": "runfold.sdk.app",
    "Approval": "runfold.sdk.values",
    "Client": "runfold.client",
    "Indeterminate": "runfold.sdk.values",
    "Recovery": "runfold.core.events",
    "Result": "runfold.sdk.values",
    "ToolContext": "runfold.sdk.context",
    "tool": "runfold.sdk.tools",
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
