"""The app of the crowd: a tool of every recovery class, each of which leaves its mark in a book."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from psycopg import sql
from psycopg.rows import dict_row

from demo.outside import Outside, model, outside
from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from tests.crowd import ledger
from tests.crowd.names import AGENT, CALL_TIMEOUT_S

_OPEN_S: Final = 0.2


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


@tool(recovery=Recovery.KEYED, timeout=CALL_TIMEOUT_S, dedupe=True)
async def send(ctx: ToolContext[Outside], title: str) -> Any:
    """Send a letter by a system that knows no keys: the effects table remembers in its place."""
    return await _post(ctx, "letters", title)


@tool(recovery=Recovery.TRANSACTIONAL, timeout=CALL_TIMEOUT_S)
async def enter(ctx: ToolContext[Outside], title: str) -> Any:
    """Enter something into the ledger, together with the key of the call."""
    table = sql.Identifier(os.environ["RUNFOLD_POSTGRES_SCHEMA"], ledger.TABLE)
    row = (ctx.idempotency_key, ctx.attempt, os.getpid(), title)
    async with ctx.connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(ledger.INSERT.format(table), row)
        entry = await cursor.fetchone()
    # So long that a fault can meet the open transaction.
    await asyncio.sleep(_OPEN_S)
    return entry


async def _post(ctx: ToolContext[Outside], collection: str, title: str) -> Any:
    return await ctx.deps.post(collection, ctx.idempotency_key, {"title": title}, ctx.attempt)


app = App(
    [
        Agent(
            AGENT,
            model=model(),
            instructions="Work.",
            first_message=lambda task: str(task["task"]),
            tools=[read, publish, refund, file_ticket, pay, send, enter],
        )
    ],
    lifespan=outside,
)
