"""A travel agent with three mistakes that only a crash shows, and what ``crash_everywhere`` says about it.

    python examples/careless/app.py

It prints the report that docs/testing.md shows and explains.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.testing import Harness, ScriptedModel, crash_everywhere


@dataclass
class Airline:
    """The other side: what it has booked, charged and mailed outlives our processes."""

    seats: list[str] = field(default_factory=list)
    charged: int = 0
    mails: dict[str, str] = field(default_factory=dict)


def make_app(airline: Airline) -> App:
    """Make the app as every process does that imports it."""

    @tool(recovery=Recovery.KEYED)
    async def book(ctx: ToolContext[None], flight: str) -> str:
        """Book a seat."""
        airline.seats.append(flight)  # the key is not handed on: twice is two seats
        return f"{flight}, seat {len(airline.seats)} for {ctx.run_id}"

    @tool(recovery=Recovery.KEYED)
    async def charge(ctx: ToolContext[None], amount: int) -> str:
        """Charge the card."""
        airline.charged += amount
        await asyncio.sleep(0.2)
        return f"charged under {ctx.idempotency_key}"

    @tool(recovery=Recovery.LOOKUP, timeout=10.0)
    async def mail(ctx: ToolContext[None], to: str) -> str:
        """Send the ticket."""
        airline.mails[ctx.idempotency_key] = to
        return "sent"

    @mail.lookup
    async def was_sent(ctx: ToolContext[None], to: str) -> str | Absent:  # noqa: ARG001 - a lookup has its tool's parameters
        return "sent" if to in airline.mails else ABSENT  # looks for the address among the keys

    model = ScriptedModel(
        [("book", {"flight": "RF 42"}), ("charge", {"amount": 120}), ("mail", {"to": "ann@example.com"}), "Have fun!"]
    )
    return App([Agent("travel", model=model, instructions="You book flights.", tools=[book, charge, mail])])


async def trip(harness: Harness) -> str:
    """One trip is booked, charged and mailed once."""
    output: str = await harness.result(await harness.start("travel", "RF 42, please"))
    charged = harness.world.charged
    assert charged == 120, f"charged {charged} instead of 120"  # noqa: S101, PLR2004 - a scenario asserts
    return output


if __name__ == "__main__":
    print(crash_everywhere(trip, make_app, world=Airline))
