"""An app whose tools take long; each call is a line in a file. Loaded by the executors of test_slow_tools.py."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from runfold import ABSENT, Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

SECONDS = 8.0
CALLS = Path(os.environ["SLOW_CALLS"])


def _called(key: str) -> None:
    with CALLS.open("a", encoding="utf-8") as calls:
        calls.write(f"{key}\n")


@tool(recovery=Recovery.LOOKUP)
async def wait(ctx: ToolContext[None]) -> str:
    """Take long on the event loop."""
    _called(ctx.idempotency_key)
    await asyncio.sleep(SECONDS)
    return "waited"


@wait.lookup
async def find(_: ToolContext[None]) -> Any:
    """Say that it did not happen: whoever asks has it called once more."""
    return ABSENT


@tool(recovery=Recovery.KEYED)
def compute(ctx: ToolContext[None]) -> str:
    """Take long in a thread."""
    _called(ctx.idempotency_key)
    time.sleep(SECONDS)
    return "computed"


app = App(
    [
        Agent(name, model=ScriptedModel([(function.name, {}), "done"]), instructions="", tools=[function])
        for name, function in (("waiter", wait), ("computer", compute))
    ]
)
