"""A tool called outside of a run: what the tests of calls share."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from runfold import Agent, App
from runfold.ports.agents import Invocation, RunningAgent
from runfold.testing import ScriptedModel


@dataclass
class Deps:
    """What the lifespan gives."""

    greeting: str = "hello"


@asynccontextmanager
async def lifespan(role: str) -> AsyncIterator[Deps]:
    """Give the dependencies."""
    yield Deps(f"hello {role}")


@asynccontextmanager
async def running(*tools: Callable[..., Any]) -> AsyncIterator[RunningAgent]:
    """Run an app of one agent."""
    app = App([Agent("one", model=ScriptedModel(["done"]), instructions="", tools=tools)], lifespan=lifespan)
    async with app.running("executor", revision="r1") as agents:
        found = agents.get("one")
        assert found is not None
        yield found


def invocation(name: str, arguments: object = None, **changed: Any) -> Invocation:
    """One call of step 18 of run-1."""
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "agent": "one",
        "step": 18,
        "attempt": 1,
        "tool": name,
        "tool_call_id": "call-1",
        "idempotency_key": "run-1:18",
        "arguments": arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode(),
        "values": {"seen": b"[1,2]"},
        "timeout_s": 5.0,
    }
    return Invocation(**{**fields, **changed})
