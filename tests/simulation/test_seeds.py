"""Random work under random faults leaves every invariant whole. Again by hand: ``python -m tests.simulation SEED``."""

from __future__ import annotations

import gc
import sys
from random import SystemRandom

import pytest

from runfold.testing.simulation.faults import ALL_FAULTS
from tests.simulation.many import run_many
from tests.simulation.scenario import Plan, run_seed

FIXED = range(1000, 1020)
FRESH = 3
MANY = 200
WORKERS = 2

# Virtual time may stand still: a loop that never waits.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("seed", FIXED)
def test_faults_come_and_go_and_every_invariant_holds(seed: int) -> None:
    """Unsafe things never happen; when the faults are over, every run ends and the tables follow."""
    check_seed(seed)


@pytest.mark.parametrize("number", range(FRESH))
def test_every_invariant_holds_for_a_seed_nobody_has_tried(number: int) -> None:
    """The same, for seeds that differ each time: the first line of a failure says which."""
    check_seed(SystemRandom().randrange(10_000, 1 << 31))


def check_seed(seed: int) -> None:
    """Print the seed, run it, and fail with whatever it violates."""
    sys.stdout.write(f"seed {seed}: {Plan.of(seed)}\nagain: python -m tests.simulation {seed} --trace\n")
    try:
        assert run_seed(seed).problems() == []
    finally:
        gc.collect()  # what was never awaited is told of now, and not in another seed's test


def test_two_hundred_runs_leave_every_invariant_whole() -> None:
    """Two hundred more on both cores, the same ones each time: faults of every kind hit, and nothing is broken."""
    tally = run_many(range(2000, 2000 + MANY), WORKERS, sys.stdout.write)
    sys.stdout.write(f"{tally.line()}\n")
    assert [report.seed for report in tally.broken] == []
    assert tally.seeds == MANY
    assert tally.effects > MANY


def test_the_fixed_seeds_choose_every_fault() -> None:
    assert {fault for seed in range(2000, 2000 + MANY) for fault in Plan.of(seed).faults} == set(ALL_FAULTS)
