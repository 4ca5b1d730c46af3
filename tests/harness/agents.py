"""Agents of the harness's own tests, each on a world of fakes that a test looks into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from runfold import ABSENT, Absent, Agent, App, Recovery, Result, ToolContext, tool
from runfold.testing import ScriptedModel


@dataclass
class World:
    """What outlives processes."""

    mails: dict[str, str] = field(default_factory=dict)
    payments: list[tuple[str, int]] = field(default_factory=list)
    lifespans: list[str] = field(default_factory=list)
    flown: int = 0

    def send(self, key: str, to: str) -> str:
        """Send a mail, once for each key."""
        self.mails.setdefault(key, to)
        return f"mail to {to}"

    def pay(self, key: str, amount: int) -> str:
        """Pay, once for each key."""
        if key not in [paid for paid, _ in self.payments]:
            self.payments.append((key, amount))
        return "paid"


def app_of(tools: Sequence[Any], script: Sequence[Any], **options: Any) -> App:
    """Make an app of one agent, called ``agent``."""
    return App([Agent("agent", model=ScriptedModel(script), instructions="", tools=tools, **options)])


def tools_of(world: World) -> list[Any]:
    """Make one tool of each recovery class."""

    @tool(recovery=Recovery.RERUN)
    async def read(ctx: ToolContext[None]) -> Result[str]:
        """Read something, slowly."""
        await asyncio.sleep(2)
        return Result("read", patch={"read_by": ctx.run_id})

    @tool(recovery=Recovery.KEYED)
    async def mail(ctx: ToolContext[None], to: str) -> str:
        """Send a mail."""
        return world.send(ctx.idempotency_key, to)

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    def pay(ctx: ToolContext[None], amount: int) -> str:
        """Pay, in a thread."""
        return world.pay(ctx.idempotency_key, amount)

    @tool(recovery=Recovery.LOOKUP, timeout=30.0)
    async def post(ctx: ToolContext[None], text: str) -> str:
        """Post once."""
        assert ctx.idempotency_key not in world.mails
        world.mails[ctx.idempotency_key] = text
        return "posted"

    @post.lookup
    async def posted(ctx: ToolContext[None], text: str) -> str | Absent:
        return "posted" if ctx.idempotency_key in world.mails else ABSENT

    @tool(recovery=Recovery.MANUAL)
    async def fly(ctx: ToolContext[None]) -> str:
        """Do what nobody can look up."""
        world.flown += 1
        return "landed"

    return [read, mail, pay, post, fly]


def everything(world: World) -> App:
    """Make an app whose run uses all but MANUAL, and waits for one approval."""

    @asynccontextmanager
    async def lifespan(role: str) -> AsyncIterator[None]:
        world.lifespans.append(role)
        yield

    script: list[Any] = [
        ("read", {}),
        [("mail", {"to": "ann"}), ("post", {"text": "news"})],
        ("pay", {"amount": 3}),
        "The end.",
    ]
    agent = Agent("agent", model=ScriptedModel(script), instructions="", tools=tools_of(world))
    return App([agent], lifespan=lifespan)


def flying(world: World) -> App:
    """Make an app whose run uses the MANUAL tool."""
    return app_of(tools_of(world), [("fly", {}), "The end."])
