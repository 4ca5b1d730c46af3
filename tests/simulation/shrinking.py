"""A failing seed of this suite, made small."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace

from runfold.testing.simulation.shrink import shrink, smaller_conditions
from tests.simulation.scenario import Plan, run_seed


def shrink_seed(seed: int, plan: Plan, say: Callable[[str], None]) -> Plan:
    """Give a smaller plan under which the same checker still speaks; ``plan`` itself if it does not fail."""
    kind = _kind_of(seed, plan)
    if kind is None:
        return plan
    say(f"seed {seed} breaks {kind}; shrinking\n")

    def fails(candidate: Plan) -> bool:
        found = _kind_of(seed, candidate) == kind
        if found:
            say(".")
        return found

    small = shrink(plan, fails, _smaller)
    say(f"\nseed {seed}: {small}\n")
    return small


def _kind_of(seed: int, plan: Plan) -> str | None:
    """Name of the checker that speaks first, or of the exception."""
    try:
        problems = run_seed(seed, plan=plan).problems()
    except Exception as error:  # noqa: BLE001 - it is what this plan does
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {frame.name}"
    return problems[0].partition(":")[0] if problems else None


def _smaller(plan: Plan) -> Iterator[Plan]:
    for runs in dict.fromkeys((1, plan.runs // 2, plan.runs - 1)):
        if 0 < runs < plan.runs:
            yield replace(plan, runs=runs)
    for name in plan.tools:
        if len(plan.tools) > 1:
            yield replace(plan, tools=tuple(other for other in plan.tools if other != name))
    if plan.is_big:
        yield replace(plan, is_big=False)
    for conditions in smaller_conditions(plan.conditions):
        yield replace(plan, conditions=conditions)
