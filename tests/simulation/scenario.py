"""One run of the whole system from a seed: random runs of a random app, under the conditions that the seed chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from runfold.core.events import ToolCallRequested
from runfold.testing.simulation.people import People
from runfold.testing.simulation.simulate import Conditions, Outcome, Simulation
from runfold.testing.simulation.trace import Trace
from runfold.testing.simulation.weather import stream, weather_of
from tests.simulation.world import NO_SUCH_TOOL, SYNC_TOOLS, TOOL_OPTIONS, World


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed chooses before anything begins.

    Attributes:
        conditions: What goes wrong.
        timeout: Seconds of every tool: shorter than the session of the group, or longer.
        is_big: See ``World``.
    """

    conditions: Conditions
    runs: int
    tools: tuple[str, ...]
    timeout: float
    is_big: bool

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults."""
        return self.conditions.faults

    @classmethod
    def of(cls, seed: int, faults: Collection[str] | None = None) -> Plan:
        """The plan of a seed, with the faults that are given instead of its own."""
        chance = stream(seed, "plan")
        names = [*TOOL_OPTIONS, *SYNC_TOOLS, NO_SUCH_TOOL]
        is_big = chance.random() < 0.3
        conditions = Conditions.of(seed, faults)
        return cls(
            conditions=replace(conditions, inline_limit=1000) if is_big else conditions,
            runs=chance.randint(1, 12),
            tools=tuple(chance.sample(names, chance.randint(1, len(names)))),
            timeout=chance.choice([5.0, 5.0, 15.0]),
            is_big=is_big,
        )


def run_seed(
    seed: int, faults: Collection[str] | None = None, *, plan: Plan | None = None, traced: bool = False
) -> Outcome:
    """Run one seed, with its own faults or the given ones, or by another plan altogether."""
    plan = Plan.of(seed, faults) if plan is None else plan
    weather = weather_of(plan.faults, stream(seed, "clients"), plan.conditions.trouble)
    world = World(weather, stream(seed, "world"), lambda *_: None, plan.timeout, plan.is_big)

    async def scenario(people: People) -> None:
        world.requested_at = lambda run_id, step, attempt: _requested_at(people, run_id, step, attempt)
        await asyncio.gather(_start_runs(people, world, plan, stream(seed, "runs")), people.attend())

    trace = Trace() if traced else None
    return Simulation(world.app, scenario, seed, plan.conditions, weather, world.book, trace).run()


async def _start_runs(people: People, world: World, plan: Plan, chance: Random) -> None:
    """Start runs of 0 to 3 turns with 1 to 3 calls each."""
    for number in range(plan.runs):
        run_id = f"r{number}"
        turns = [[_call(chance, plan) for _ in range(chance.randint(1, 3))] for _ in range(chance.randint(0, 3))]
        world.scripts[run_id] = [*turns, "done"]
        ids = {"id": f"s{number}"} if chance.random() < 0.3 else {}
        await people.start(run_id, "a", run_id, **ids)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 5)


def _call(chance: Random, plan: Plan) -> tuple[str, dict[str, Any]]:
    return chance.choice(plan.tools), {"n": chance.randint(0, 9) if chance.random() < 0.95 else "bad"}


def _requested_at(people: People, run_id: str, step: int, attempt: int) -> float | None:
    """When the valid request of an attempt landed, by the broker's clock, which is the loop's."""
    history = people.history.of(run_id)
    for offset, body in reversed(history.records):
        if isinstance(body, ToolCallRequested) and (body.run_id, body.step, body.attempt) == (run_id, step, attempt):
            return people.cluster.landed_at(history.partition, offset)
    return None
