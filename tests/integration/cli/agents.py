"""The app of these tests: one tool that needs an approval, and a model that follows a script."""

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel


@tool(recovery=Recovery.KEYED, needs_approval=True)
async def publish(ctx: ToolContext[None], body: str) -> str:
    """Publish something."""
    return f"published {body!r} under {ctx.idempotency_key}"


app = App(
    [
        Agent(
            "research",
            model=ScriptedModel([("publish", {"body": "x" * 2000}), "done"]),
            instructions="Work.",
            tools=[publish],
        )
    ]
)
