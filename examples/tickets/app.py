"""A support agent with two tools, one of which needs a person's approval. It needs no network.

The tools keep a small file as their "ticket system". In the folder of this file:

    export RUNFOLD_APP=app:app        # for runfold-step-executor and runfold-reconciler
    runfold start support --input '"The invoice of May is wrong"' --run-id first
    runfold waits                     # shows the gate first:3 with the arguments of the refund
    runfold approve first first:3 --by you
    runfold events first
"""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel

BOOK = Path(os.environ.get("TICKETS_BOOK", "tickets-book.json"))


def _entries() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(BOOK.read_text(encoding="utf-8")) if BOOK.exists() else {}
    return entries


def _write(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Make an entry, once for each key: what a real system does that honours an Idempotency-Key."""
    entries = _entries()
    kept: dict[str, Any] = entries.setdefault(key, entry)
    partial = BOOK.with_suffix(".partial")
    partial.write_text(json.dumps(entries, indent=2), encoding="utf-8")
    partial.replace(BOOK)
    return kept


@tool(recovery=Recovery.LOOKUP, timeout=10.0)
def create_ticket(ctx: ToolContext[None], title: str, priority: int = 3) -> dict[str, Any]:
    """Open a ticket."""
    return _write(ctx.idempotency_key, {"ticket": title, "priority": priority})


@create_ticket.lookup
def find_ticket(ctx: ToolContext[None], title: str, priority: int = 3) -> dict[str, Any] | Absent:  # noqa: ARG001 - a lookup has its tool's parameters
    """Say whether the ticket was opened: asked after a crash, before anything is repeated."""
    found: dict[str, Any] | None = _entries().get(ctx.idempotency_key)
    return ABSENT if found is None else found


@tool(recovery=Recovery.KEYED, needs_approval=True)
def refund(ctx: ToolContext[None], order: str, amount: Decimal) -> dict[str, Any]:
    """Pay money back."""
    return _write(ctx.idempotency_key, {"refund": order, "amount": str(amount)})


# A real model instead: model="openai:gpt-5" (any pydantic-ai name), with OPENAI_API_KEY set for the executors.
MODEL = ScriptedModel(
    [
        [
            ("create_ticket", {"title": "The invoice of May is wrong"}),
            ("refund", {"order": "2026-05-17", "amount": "12.50"}),
        ],
        "I opened a ticket, and your refund is on its way.",
    ]
)

app = App(
    [
        Agent(
            "support",
            model=MODEL,
            instructions="You help customers. Open a ticket for every complaint; refund what was charged wrongly.",
            tools=[create_ticket, refund],
        )
    ]
)
