"""`python -m bench.memory [--runs 500 2500] [--turns 1]`: resident bytes of the executor for one run more.

Each number of runs has executors of its own: what a process has freed is not returned to the system, so a second
number in the same process would look cheaper. Active: in the middle of a call that takes long. Waiting: at a gate,
before it leaves memory. At rest: what so many runs more that became rows leave behind, in a process where as many had
done so before: freed memory is used again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.costs import rss_of
from bench.driving import Plan, names, submit
from bench.following import Follower
from bench.printing import Figures, progress, rounded, show
from bench.wake import await_rows
from bench.world import opened, own_stack
from devstack import Stack
from runfold.core.events import Interrupted, ToolCallRequested

_HOUR_MS = 3_600_000


def measure(stack: Stack, runs: tuple[int, int], turns: int) -> Iterator[Figures]:
    """Measure at both numbers of runs; the difference is what a run takes."""
    few, many = runs
    first, second = _resident(stack, few, turns), _resident(stack, many, turns)
    yield {
        "what": "resident bytes a run",
        "few": few,
        "many": many,
        "steps_before": Plan(turns=turns).steps,
        "active": rounded((second["active"] - first["active"]) / (many - few)),
        "waiting": rounded((second["waiting"] - first["waiting"]) / (many - few)),
        "at_rest": rounded(second["at_rest"] / many),
    }


def _resident(stack: Stack, runs: int, turns: int) -> dict[str, int]:
    plan = Plan(turns=turns)
    found = {}
    with opened(stack) as world, Follower(world, Interrupted) as follower:
        executor = world.start_all()["executor"]
        submit(world, replace(plan, last=("rest", {"ms": _HOUR_MS})), names(runs))
        follower.await_count(ToolCallRequested, runs * (plan.steps + 1))
        found["active"] = rss_of(executor.pid)
        progress(f"{runs} active runs: measured")
    with opened(stack) as world, Follower(world, Interrupted) as follower:
        executor = world.start_all()["executor"]
        submit(world, replace(plan, last=("gate", {})), names(runs))
        follower.await_count(Interrupted, runs)
        found["waiting"] = rss_of(executor.pid)
        await_rows(world, executor)
        before = rss_of(executor.pid)
        submit(world, replace(plan, last=("gate", {})), names(runs))
        follower.await_count(Interrupted, 2 * runs)
        await_rows(world, executor)
        found["at_rest"] = rss_of(executor.pid) - before
        progress(f"{runs} waiting runs: measured")
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory")
    parser.add_argument("--runs", type=int, nargs=2, default=[500, 2500])
    parser.add_argument("--turns", type=int, default=1, help="completions that a run has behind it, each of 20 calls")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, (given.runs[0], given.runs[1]), given.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
