"""Throughput does not collapse unnoticed: a guard that does not depend on the machine."""

import pytest

from bench.appending import bare_prefix, bare_rate
from bench.driving import Plan, drive
from bench.world import opened
from devstack import Stack

pytestmark = pytest.mark.integration

_RUNS = 100
_ROUNDS = 4
_BARE_STEPS = 100
_LEAST_RATIO = 0.02


def test_a_hundred_runs_reach_a_fair_part_of_the_bare_loop(stack: Stack) -> None:
    """With every service running, 100 runs of 20 steps keep up with a bare append loop about as far as they did.

    Both are measured in turn on the same servers, so that a slow machine slows both, and the best round of each
    counts: what else the machine does only ever takes. The time of a round is from the first start to the last end as
    Postgres shows it, so it includes starts and compactor: less than what `make bench` reports.

    How the threshold was found: a broker that has just started slows the bare loop most, so the ratio is lowest on one
    that is warm. There `python -m bench` found 0.063 on two cores (docs/speed.md); less than a third of it is asserted.
    Raise it when the runtime has become faster.
    """
    plan, bare, rates = Plan(), list[float](), list[float]()
    with opened(stack) as world:
        world.installation.runfold("setup", "--topic-prefix", bare_prefix(world))
        world.start_all()
        drive(world, plan, _RUNS)  # the first runs of a process are slow
        for _ in range(_ROUNDS):
            bare.append(bare_rate(world, _RUNS, _BARE_STEPS))
            driven = drive(world, plan, _RUNS)
            rates.append(_RUNS * plan.steps / (driven.applied[-1][0] - driven.applied[0][0]))
    said = f"steps/s {[round(rate) for rate in rates]}, of the bare loop {[round(rate) for rate in bare]}"
    print(said)  # noqa: T201 - for -s
    assert max(rates) > _LEAST_RATIO * max(bare), said
