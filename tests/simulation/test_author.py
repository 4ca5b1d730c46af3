"""An author puts an own agent under the faults: an honest one comes through, a lying one is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.testing import ScriptedModel
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.people import People
from runfold.testing.simulation.shrink import shrink, smaller_conditions
from runfold.testing.simulation.simulate import Conditions, Outcome, simulate

KILLS = ("step-kill", "network")


def agent(book: Book, *, lies: bool = False) -> App:
    """A shop: charging a card may happen once only; the bank knows the key, if its lookup says so."""

    @tool(recovery=Recovery.LOOKUP, timeout=5)
    async def charge(ctx: ToolContext[None], euros: int) -> dict[str, int]:
        """Charge the card."""
        book.called(ctx, Recovery.LOOKUP)
        charged: dict[str, int] = book.performed(ctx, Recovery.LOOKUP, {"euros": euros})
        return charged

    @charge.lookup
    async def find_charge(ctx: ToolContext[None], euros: int) -> dict[str, int] | Absent:
        """Ask the bank."""
        return ABSENT if lies else book.results.get(ctx.idempotency_key, ABSENT)

    @tool(recovery=Recovery.KEYED, timeout=5, needs_approval=True)
    async def ship(ctx: ToolContext[None]) -> str:
        """Ship the goods."""
        book.called(ctx, Recovery.KEYED)
        shipped: str = book.performed(ctx, Recovery.KEYED, "shipped")
        return shipped

    model = ScriptedModel([("charge", {"euros": 5}), ("ship", {}), ("charge", {"euros": 7}), "Done."])
    return App([Agent("shop", model=model, instructions="", tools=[charge, ship])])


async def orders(people: People) -> None:
    """Three orders, and people who approve."""
    for number in range(3):
        await people.start(f"order-{number}", "shop", "an order")
    await people.attend()


def run(seed: int, *, lies: bool = False, conditions: Conditions | None = None) -> Outcome:
    """One seed of the shop."""
    book = Book()
    return simulate(agent(book, lies=lies), orders, seed=seed, faults=KILLS, book=book, conditions=conditions)


@pytest.mark.parametrize("seed", range(5))
def test_an_honest_agent_comes_through(seed: int) -> None:
    """Every order is charged twice and shipped once, whatever died when (unless somebody cancelled it)."""
    outcome = run(seed)
    assert outcome.problems() == []
    assert len(outcome.ending.downstream.effects) >= 1


def test_an_author_needs_no_book() -> None:
    """Without one, inputs, tables and progress are still looked at."""
    assert simulate(agent(Book()), orders, seed=3, faults=KILLS).problems() == []


def test_a_lookup_that_lies_is_found_out_and_the_seed_is_made_small() -> None:
    """Some process dies between the charge and its record; the lookup says absent; the card is charged again."""
    seed = next(seed for seed in range(60) if run(seed, lies=True).problems())
    found = Conditions.of(seed, KILLS)
    kind = "manual_and_lookup_effects_happen_at_most_once"

    def fails(conditions: Conditions) -> bool:
        return any(problem.startswith(kind) for problem in run(seed, lies=True, conditions=conditions).problems())

    assert fails(found)
    small = shrink(found, fails, smaller_conditions, tries=25)
    assert fails(small)
    assert small.steps.limit < found.steps.limit
    assert not fails(replace(small, steps=replace(small.steps, limit=0)))
