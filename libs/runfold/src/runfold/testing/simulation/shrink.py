"""A failing seed made small: fewer faults, fewer strikes, fewer of everything, while the same checker still speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from runfold.testing.simulation.simulate import Conditions

PlanT = TypeVar("PlanT")


def shrink(
    plan: PlanT, fails: Callable[[PlanT], bool], smaller: Callable[[PlanT], Iterable[PlanT]], tries: int = 300
) -> PlanT:
    """Take the first smaller plan that still fails, again and again, until none does or ``tries`` are used up.

    Args:
        plan: One that fails.
        fails: Runs a plan, and says whether it fails in the same way.
        smaller: Plans that are a little smaller, the most promising first.
        tries: How many plans are run at most.
    """
    while True:
        for candidate in smaller(plan):
            tries -= 1
            if tries < 0:
                return plan
            if fails(candidate):
                plan = candidate
                break
        else:
            return plan


def smaller_conditions(conditions: Conditions) -> Iterator[Conditions]:
    """Give conditions that are kinder: much kinder ones first, then those that differ in one thing."""
    yield from _fewer_strikes(conditions)
    for fault in conditions.faults:
        yield replace(conditions, faults=tuple(other for other in conditions.faults if other != fault))
    if conditions.executors > 1:
        yield replace(conditions, executors=1)
    if conditions.compactors > 1:
        yield replace(conditions, compactors=1)
    if conditions.reconcilers > 1:
        yield replace(conditions, reconcilers=1)
    if conditions.trouble:
        yield replace(conditions, trouble=0.0)
    if conditions.steps.hiccups:
        yield replace(conditions, steps=replace(conditions.steps, hiccups=0))
    yield from _other_strikes(conditions)
    if conditions.most_faults > _FEWEST:
        yield replace(conditions, most_faults=conditions.most_faults - 1)


_FEWEST = 2


def _fewer_strikes(conditions: Conditions) -> Iterator[Conditions]:
    steps = conditions.steps
    for limit in dict.fromkeys((0, 1, 2, steps.limit // 2, steps.limit - 1)):
        if 0 <= limit < steps.limit:
            yield replace(conditions, steps=replace(steps, limit=limit))


def _other_strikes(conditions: Conditions) -> Iterator[Conditions]:
    steps = conditions.steps
    for number in range(1, steps.limit):
        if number not in steps.dropped:
            yield replace(conditions, steps=replace(steps, dropped=steps.dropped | {number}))
    if steps.limit and steps.kills and steps.pauses:
        yield replace(conditions, steps=replace(steps, kills=False))
        yield replace(conditions, steps=replace(steps, pauses=False))
