"""The demo's agent: it reads, opens tickets and publishes a report, the last only with a person's approval."""

from __future__ import annotations

from dataclasses import dataclass

from demo.outside import Outside, model, outside
from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool

TICKET_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket, as the ticket system gives it."""

    id: str
    key: str
    title: str
    priority: int


@tool(recovery=Recovery.RERUN, timeout=10.0)
async def search(ctx: ToolContext[Outside], query: str) -> list[str]:
    """Look something up."""
    return await ctx.deps.search(query)


@tool(recovery=Recovery.LOOKUP, timeout=TICKET_TIMEOUT_S)
async def create_ticket(ctx: ToolContext[Outside], title: str, priority: int = 3) -> Ticket:
    """Open a ticket."""
    return Ticket(**await ctx.deps.post("tickets", ctx.idempotency_key, {"title": title, "priority": priority}))


@create_ticket.lookup
async def find_ticket(ctx: ToolContext[Outside], title: str, priority: int = 3) -> Ticket | Absent:  # noqa: ARG001 - a lookup has its tool's parameters
    """Ask for the ticket that was opened under the key, if any."""
    found = await ctx.deps.find("tickets", ctx.idempotency_key)
    return ABSENT if found is None else Ticket(**found)


@tool(recovery=Recovery.KEYED, timeout=10.0, needs_approval=True)
async def publish_report(ctx: ToolContext[Outside], body: str) -> str:
    """Publish the report."""
    published = await ctx.deps.post("publications", ctx.idempotency_key, {"body": body})
    return str(published["id"])


app = App(
    [
        Agent(
            "research",
            model=model(),
            instructions="You research incidents. Search first, open tickets for what must be done, then publish.",
            first_message=lambda question: str(question["question"]),
            tools=[search, create_ticket, publish_report],
        )
    ],
    lifespan=outside,
)
