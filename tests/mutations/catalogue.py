"""Every mutation, and the table of docs/mutations.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from tests.mutations import compaction, effects, inputs, ownership, recovery, rulings, takeover
from tests.mutations.covered import COVERED
from tests.mutations.planting import Mutation
from tests.mutations.stage import play

_GROUPS = (ownership, takeover, inputs, recovery, effects, rulings, compaction)
MUTATIONS: tuple[Mutation, ...] = tuple(mutation for group in _GROUPS for mutation in group.MUTATIONS)
_HEAD = ("mutation", "what the mutated code does", "invariant that breaks", "schedule", "checker that speaks", "caught")


def by_name(name: str) -> Mutation:
    """Give one."""
    return next(mutation for mutation in MUTATIONS if mutation.name == name)


def clean(mutation: Mutation) -> list[str]:
    """What the checkers say of its schedule without it: nothing."""
    return play(mutation.scenario, mutation.settings)


def planted(mutation: Mutation) -> list[str]:
    """What they say with it."""
    with mutation.plant():
        return play(mutation.scenario, mutation.settings)


def speaks(mutation: Mutation, problems: Iterable[str]) -> bool:
    """Whether the checker that has to speak is among them."""
    return any(problem.startswith(f"{mutation.checker.__name__}:") for problem in problems)


def table(caught: Mapping[str, bool]) -> str:
    """Give the table in Markdown; ``caught``: of those that were tried, by name."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
    for mutation in MUTATIONS:
        if mutation.name in caught:
            schedule = _schedule(mutation)
            said = "yes" if caught[mutation.name] else "**no**"
            checker = f"`{mutation.checker.__name__}`"
            lines.append(_line([f"`{mutation.name}`", mutation.fault, mutation.breaks, schedule, checker, said]))
    return "\n".join(lines) + "\n"


def _schedule(mutation: Mutation) -> str:
    """Its name in words, and what happens."""
    name = mutation.scenario.__name__.strip("_").replace("_", " ")
    return f"*{name}*: {' '.join((inspect.getdoc(mutation.scenario) or '').split())}"


def covered_table() -> str:
    """Give the table of the rules that others cover, in Markdown."""
    lines = [_line(("mutation", "what the mutated code does", "what makes up for it")), _line(["---"] * 3)]
    lines += [_line([f"`{rule.name}`", rule.fault, rule.covered_by]) for rule in COVERED]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
