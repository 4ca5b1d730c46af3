"""How a fault is planted: one name of the real code is replaced while a block runs, and nothing else is touched."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from runfold.testing.simulation.ending import Checker
from tests.mutations.stage import Stage

FENCED = "an effect is preceded by its durable request"
ONCE = "at most one effect per key"
RECORDED = "a recorded completion is never asked for again"
INPUTS = "each input has one effect"
TABLES = "fold(log) equals snapshot equals projection"
ENDS = "every run ends or waits"
BOUNDED = "every run ends or waits, and nothing is tried for ever"

Planted = AbstractContextManager[None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault, and the schedule under which a checker has to notice it.

    Attributes:
        name: Of the row in docs/mutations.md.
        fault: What the mutated code does.
        breaks: The invariant of the design's last section that it breaks.
        checker: Which one has to speak.
        plant: Plants it; the block that it encloses runs with the fault.
        scenario: The directed schedule.
        settings: Of its cluster.
    """

    name: str
    fault: str
    breaks: str
    checker: Checker
    plant: Callable[[], Planted]
    scenario: Callable[[Stage], Awaitable[None]]
    settings: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def together(*planted: Planted) -> Iterator[None]:
    """Plant several: a rule and the one behind it, which would mend what the first one lets pass."""
    with ExitStack() as stack:
        for one in planted:
            stack.enter_context(one)
        yield


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of a class or module by what ``make`` makes of the real one.

    Raises:
        AttributeError: There is no such name any more: a mutation that plants nothing must not pass for one that is
            caught.
    """
    kept = inspect.getattr_static(owner, name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, kept)
