"""Which faults come when: a pure function of the seed. What they hit depends on who runs at that moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.crowd.names import PAUSE_S

GROUPS: Final = {
    "kill": ("kill executor", "kill executor", "kill executor", "kill compactor", "kill reconciler"),
    "pause": ("pause executor", "pause executor", "pause compactor", "pause reconciler"),
    "broker": ("kill broker",),
    "postgres": ("restart postgres", "crash postgres"),
    "backends": ("terminate backends", "terminate backends"),
    "storm": ("rebalance storm",),
    "stop": ("stop executor", "stop compactor", "stop reconciler"),
}
"""Name of a group of faults -> the faults of one round. A round has all of them, in a new order each time."""

ALL_GROUPS: Final = tuple(GROUPS)
GAP_S: Final = 4.0
"""Mean time between two faults: about what a process of ours takes to start and to be in the middle of something."""
_SPREAD: Final = (0.4, 1.6)
_ABSENCE_S: Final = (0.0, 2.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to come.

    Attributes:
        at_s: Since the beginning.
        kind: E.g. ``kill executor``.
        victim: Chooses among those that run then: a fraction of their number.
        absence_s: How long what was killed stays away.
        pause_s: How long what is stopped by SIGSTOP sleeps.
    """

    at_s: float
    kind: str
    victim: float
    absence_s: float
    pause_s: float


def schedule(seed: int, seconds: float, groups: Collection[str] = ALL_GROUPS) -> Sequence[Fault]:
    """Give the faults of so many seconds, in order; at least one round, which is squeezed where time is short."""
    chance = Random(seed)  # noqa: S311 - a plan, no secret
    one_round = [kind for group in ALL_GROUPS if group in groups for kind in GROUPS[group]]
    faults: list[Fault] = []
    gap = min(GAP_S, seconds / (len(one_round) + 1)) if one_round else GAP_S
    at = 0.0
    while one_round and at < seconds:
        for kind in chance.sample(one_round, len(one_round)):
            at += gap * chance.uniform(*_SPREAD)
            faults.append(Fault(at, kind, chance.random(), chance.uniform(*_ABSENCE_S), chance.uniform(*PAUSE_S)))
    complete = len(one_round)
    return [fault for number, fault in enumerate(faults) if number < complete or fault.at_s < seconds]
