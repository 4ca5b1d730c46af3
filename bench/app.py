"""The agent of the benchmark: one completion that asks for 20 no-op calls, executed one after the other."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

STEPS: Final = 20
# CLOCK_MONOTONIC at the start of each step's body, by run: what the benchmark is about. Same machine, same clock.
_STARTS: Final[defaultdict[str, list[float]]] = defaultdict(list)


@tool(recovery=Recovery.RERUN, sequential=True)
async def noop(ctx: ToolContext[None]) -> int:
    """Do nothing."""
    _STARTS[ctx.run_id].append(time.monotonic())
    return 1


@asynccontextmanager
async def lifespan(role: str) -> AsyncIterator[None]:
    """Write down the times when the executor ends."""
    yield
    if role == "executor" and _STARTS:
        await asyncio.to_thread(Path(os.environ["BENCH_TIMES"]).write_text, json.dumps(_STARTS), "utf-8")


app = App(
    [Agent("bench", model=ScriptedModel([[("noop", {})] * STEPS, "done"]), instructions="", tools=[noop])],
    lifespan=lifespan,
)
