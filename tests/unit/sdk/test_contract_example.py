"""The contract's example, word for word where it is code: it is type-checked with this file, and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal

from runfold import ABSENT, Absent, Agent, App, Approval, Indeterminate, Recovery, Result, ToolContext, tool
from runfold.core.events import Outcome
from runfold.ports.agents import GateAsked, Invocation, NotThere, Returned, Unknown
from runfold.testing import ScriptedModel


@dataclass
class Deps:
    """A ticket system."""

    tickets: dict[str, dict[str, str]] = field(default_factory=dict)
    is_reachable: bool = True


@tool(recovery=Recovery.LOOKUP, timeout=10.0)
async def create_ticket(ctx: ToolContext[Deps], title: str, priority: int = 3) -> dict[str, str]:
    """Open a ticket."""
    ticket = {"id": f"T-{len(ctx.deps.tickets)}", "title": title, "priority": str(priority)}
    return ctx.deps.tickets.setdefault(ctx.idempotency_key, ticket)


@create_ticket.lookup
async def find_ticket(ctx: ToolContext[Deps], title: str, priority: int = 3) -> dict[str, str] | Absent:
    """Find it by its key."""
    if not ctx.deps.is_reachable:
        raise Indeterminate(f"{title}/{priority}: the ticket system does not answer")
    return ctx.deps.tickets.get(ctx.idempotency_key, ABSENT)


@tool(recovery=Recovery.KEYED, needs_approval=True)
async def publish_report(ctx: ToolContext[Deps], body: str) -> str:
    """Publish a report."""
    return f"{ctx.run_id}: {body}"


@tool(recovery=Recovery.KEYED)
async def refund(ctx: ToolContext[Deps], order_id: str, amount: Decimal) -> Result[str]:
    """Refund an order."""
    return Result(f"refunded {amount}", patch={f"refund/{order_id}": ctx.step})


@refund.approval
async def refund_gate(ctx: ToolContext[Deps], order_id: str, amount: Decimal) -> Approval | None:
    """Let a person look at large ones."""
    return Approval(f"Refund {order_id}?", {"tickets": len(ctx.deps.tickets)}) if amount > 100 else None


@asynccontextmanager
async def lifespan(role: str) -> AsyncIterator[Deps]:
    """Give the dependencies."""
    assert role in ("executor", "reconciler")
    yield Deps()


MODEL = ScriptedModel(["done"])
app = App(
    [Agent("research", model=MODEL, instructions="…", tools=[create_ticket, publish_report, refund])],
    lifespan=lifespan,
)


def call(name: str, arguments: bytes) -> Invocation:
    """Make a call of step 18."""
    return Invocation("run-8c1", "research", 18, 1, name, "call-1", "run-8c1:18", arguments, {}, 10.0)


async def test_the_example_does_what_the_contract_says() -> None:
    """Key, lookup, gates, patch."""
    async with app.running("executor", revision="r1") as agents:
        agent = agents.get("research")
        assert agent is not None
        ticket = call("create_ticket", b'{"title":"x"}')
        assert await agent.look_up(ticket) == NotThere()
        made = await agent.execute(ticket)
        assert made == Returned(Outcome.SUCCESS, b'{"id":"T-0","priority":"3","title":"x"}')
        assert await agent.look_up(ticket) == made
        assert await agent.gate(ticket) is None
        assert await agent.gate(call("publish_report", b'{"body":"x"}')) == GateAsked(None)
        large = call("refund", b'{"order_id":"o-1","amount":"250"}')
        assert await agent.gate(large) == GateAsked("Refund o-1?", {"tickets": 1})
        assert await agent.gate(call("refund", b'{"order_id":"o-1","amount":"2"}')) is None
        assert await agent.execute(large) == Returned(Outcome.SUCCESS, b'"refunded 250"', patch=b'{"refund/o-1":18}')


async def test_an_indeterminate_lookup_says_nothing() -> None:
    """It is asked again, and in the end a person decides."""

    @asynccontextmanager
    async def unreachable(_: str) -> AsyncIterator[Deps]:
        yield Deps(is_reachable=False)

    async with App(app.agents, lifespan=unreachable).running("reconciler", revision="r1") as agents:
        agent = agents.get("research")
        assert agent is not None
        answer = await agent.look_up(call("create_ticket", b'{"title":"x"}'))
        assert answer == Unknown("the lookup cannot tell: x/3: the ticket system does not answer")
