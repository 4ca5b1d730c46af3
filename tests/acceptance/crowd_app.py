"""An app of one's own: two tools, one of which needs an approval. Loaded by the executors of these tests."""

from typing import Any

from demo.outside import Outside, model, outside
from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool


@tool(recovery=Recovery.LOOKUP, timeout=3.0)
async def file_ticket(ctx: ToolContext[Outside], title: str) -> Any:
    """File a ticket."""
    return await ctx.deps.post("tickets", ctx.idempotency_key, {"title": title})


@file_ticket.lookup
async def find_ticket(ctx: ToolContext[Outside], title: str) -> Any | Absent:
    """Ask by key."""
    found = await ctx.deps.find("tickets", ctx.idempotency_key)
    return ABSENT if found is None else found


@tool(recovery=Recovery.KEYED, timeout=3.0, needs_approval=True)
async def publish(ctx: ToolContext[Outside], body: str) -> Any:
    """Publish something."""
    return await ctx.deps.post("publications", ctx.idempotency_key, {"body": body})


app = App(
    [
        Agent(
            "worker",
            model=model(),
            instructions="Work.",
            first_message=lambda task: str(task["task"]),
            tools=[file_ticket, publish],
        )
    ],
    lifespan=outside,
)
