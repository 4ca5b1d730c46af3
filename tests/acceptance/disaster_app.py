"""An agent that publishes once, behind an approval; what it published stands in a file, a line for each effect."""

import os
from pathlib import Path

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

BOOK_VARIABLE = "DISASTER_BOOK"


@tool(recovery=Recovery.MANUAL, needs_approval=True)
async def publish(ctx: ToolContext[None], body: str) -> str:
    """Publish something."""
    _enter(ctx.idempotency_key)
    return f"published {len(body)} letters"


def _enter(key: str) -> None:
    with Path(os.environ[BOOK_VARIABLE]).open("a", encoding="utf-8") as book:
        book.write(f"{key}\n")


app = App(
    [
        Agent(
            "writer", model=ScriptedModel([("publish", {"body": "x" * 3000}), "done"]), instructions="", tools=[publish]
        )
    ]
)
