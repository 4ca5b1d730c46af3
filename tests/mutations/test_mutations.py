"""Each checker is seen to fail by the very fault that it is there for, planted into the running system.

Again by hand: ``python -m tests.mutations NAME``.
"""

from __future__ import annotations

from functools import cache

import pytest

from runfold.testing.simulation.checkers import CHECKERS
from tests.mutations import planting
from tests.mutations.catalogue import MUTATIONS, by_name, clean, planted, speaks
from tests.mutations.covered import COVERED, Covered
from tests.mutations.stage import play

# Virtual time may stand still: a loop that never waits.
pytestmark = pytest.mark.timeout(60)
_NAMES = [mutation.name for mutation in MUTATIONS]


@pytest.mark.parametrize("name", _NAMES)
def test_a_planted_fault_is_noticed_and_its_schedule_alone_is_not(name: str) -> None:
    """The checker that is named speaks with the mutation; without it none does."""
    mutation = by_name(name)
    assert _clean(name) == []
    problems = planted(mutation)
    assert speaks(mutation, problems), problems


@cache
def _clean(name: str) -> tuple[str, ...] | list[str]:
    mutation = by_name(name)
    same = next(other for other in MUTATIONS if _schedule(other.name) == _schedule(name))
    return clean(mutation) if same.name == name else _clean(same.name)


def _schedule(name: str) -> tuple[object, ...]:
    mutation = by_name(name)
    return mutation.scenario, tuple(sorted(mutation.settings.items(), key=str))


@pytest.mark.parametrize("rule", COVERED, ids=lambda rule: rule.name)
def test_a_rule_that_another_covers_is_not_missed(rule: Covered) -> None:
    """Alone: so docs/mutations.md does not promise of it that a checker would notice."""
    with rule.plant():
        assert play(rule.scenario, rule.settings) == []


def test_a_mutation_whose_place_is_gone_fails() -> None:
    """What plants nothing must not pass for something that is caught."""
    with pytest.raises(AttributeError, match="gone"), planting.replaced(planting, "gone", lambda real: real):
        pass


def test_names_differ_and_what_speaks_is_a_checker_of_the_simulation() -> None:
    assert len(set(_NAMES)) == len(_NAMES)
    assert {mutation.checker for mutation in MUTATIONS} <= set(CHECKERS)
