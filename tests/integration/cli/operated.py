"""The app of the operators' tests: a tool that nobody can repeat, and a prompt that a deployment changes."""

import os

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

MARKER = "zebra-4711"
"""Part of every input, argument and result; a log that holds it holds a payload."""


@tool(recovery=Recovery.MANUAL)
async def send(ctx: ToolContext[None], to: str) -> str:
    """Send a letter; the first attempt loses the answer."""
    if ctx.attempt == 1:
        message = "the connection broke"
        raise ConnectionError(message)
    return f"sent to {to}"


@tool(recovery=Recovery.KEYED, needs_approval=True)
async def publish(ctx: ToolContext[None], body: str) -> str:
    """Publish something."""
    return f"published {body}"


app = App(
    [
        Agent("clerk", model=ScriptedModel([("send", {"to": MARKER}), "done"]), instructions="Send it.", tools=[send]),
        Agent(
            "editor",
            model=ScriptedModel([("publish", {"body": MARKER}), f"done with {MARKER}"]),
            instructions=os.environ.get("INSTRUCTIONS", "Publish it."),
            tools=[publish],
        ),
    ]
)
