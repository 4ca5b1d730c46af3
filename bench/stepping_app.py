"""Agents that are always in the middle of something: what the take-over's measurements and tests look at."""

from __future__ import annotations

import asyncio
from typing import Final

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

TURNS: Final = 30
TICKS_A_TURN: Final = 20
_TICK_S: Final = 0.04
_NAP_S: Final = 6.0


@tool(recovery=Recovery.RERUN, sequential=True)
async def tick(_: ToolContext[None]) -> int:
    """Take a moment."""
    await asyncio.sleep(_TICK_S)
    return 1


@tool(recovery=Recovery.MANUAL, timeout=30.0)
async def nap(_: ToolContext[None]) -> str:
    """Take long, and in no case twice."""
    await asyncio.sleep(_NAP_S)
    return "slept"


app = App(
    [
        Agent(
            "stepper",
            model=ScriptedModel([*([[("tick", {})] * TICKS_A_TURN] * TURNS), "done"]),
            instructions="",
            tools=[tick],
        ),
        Agent(
            "brief",
            model=ScriptedModel([*([[("tick", {})] * TICKS_A_TURN] * 5), "done"]),
            instructions="",
            tools=[tick],
        ),
        Agent("napper", model=ScriptedModel([("nap", {}), "done"]), instructions="", tools=[nap]),
    ]
)
