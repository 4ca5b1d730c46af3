"""The app of the crowd: a tool of every recovery class, all of which leave their mark in the world's books."""

from __future__ import annotations

from typing import Any

from demo.outside import Outside, model, outside
from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from tests.crowd.names import AGENT, CALL_TIMEOUT_S


@tool(recovery=Recovery.RERUN, timeout=CALL_TIMEOUT_S)
async def read(ctx: ToolContext[Outside], title: str) -> Any:
    """Read something."""
    return await _post(ctx, "readings", title)


@tool(recovery=Recovery.KEYED, timeout=CALL_TIMEOUT_S)
async def publish(ctx: ToolContext[Outside], title: str) -> Any:
    """Publish something."""
    return await _post(ctx, "publications", title)


@tool(recovery=Recovery.KEYED, timeout=CALL_TIMEOUT_S, needs_approval=True)
async def refund(ctx: ToolContext[Outside], title: str) -> Any:
    """Refund something, if a person says so."""
    return await _post(ctx, "refunds", title)


@tool(recovery=Recovery.LOOKUP, timeout=CALL_TIMEOUT_S)
async def file_ticket(ctx: ToolContext[Outside], title: str) -> Any:
    """File a ticket."""
    return await _post(ctx, "tickets", title)


@file_ticket.lookup
async def find_ticket(ctx: ToolContext[Outside], title: str) -> Any | Absent:
    """Ask by key."""
    found = await ctx.deps.find("tickets", ctx.idempotency_key)
    return ABSENT if found is None else found


@tool(recovery=Recovery.MANUAL, timeout=CALL_TIMEOUT_S)
async def pay(ctx: ToolContext[Outside], title: str) -> Any:
    """Pay something: nobody but a person can say whether it happened."""
    return await _post(ctx, "payments", title)


async def _post(ctx: ToolContext[Outside], collection: str, title: str) -> Any:
    return await ctx.deps.post(collection, ctx.idempotency_key, {"title": title}, ctx.attempt)


app = App(
    [
        Agent(
            AGENT,
            model=model(),
            instructions="Work.",
            first_message=lambda task: str(task["task"]),
            tools=[read, publish, refund, file_ticket, pay],
        )
    ],
    lifespan=outside,
)
