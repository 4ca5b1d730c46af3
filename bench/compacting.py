"""`python -m bench.compacting [--runs 1000] [--turns 1]`: the compactor's own limit, on a log that is there already.

An executor alone fills the log and ends; then one compactor alone folds it. From when the first
partition is ready to the last commit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from bench.costs import Processes, spent_us
from bench.driving import Plan, names, submit
from bench.following import Follower
from bench.printing import Figures, progress, rounded, show
from bench.restoring import applied, restored
from bench.world import COMPACTOR, EXECUTOR, PATIENCE_S, World, opened, own_stack
from demo.processes import Service
from devstack import Stack
from runfold.core.events import RunCompleted

_LOOK_S = 0.02
# CLOCK_MONOTONIC, log records applied, CPU seconds of each process.
_Look = tuple[float, int, dict[str, float]]


def measure(stack: Stack, runs: int, turns: int) -> Iterator[Figures]:
    """Fill a log with runs that have ended, and let it be folded."""
    plan = Plan(turns=turns)
    with opened(stack) as world, Follower(world) as follower:
        executor = world.services.start(EXECUTOR, "executor")
        world.services.await_ready(executor)
        submit(world, plan, names(runs))
        follower.await_count(RunCompleted, runs)
        world.services.stop(executor)
        records = sum(follower.counts().values())
        progress(f"{records} records in the log")
        compactor = world.services.start(COMPACTOR, "compactor")
        processes = world.processes({"compactor": compactor})
        (first_at, first, before), (last_at, last, after) = _fold(world, compactor, records, processes)
    spent = spent_us(before, after, last - first)
    shares = {name: rounded(value) for name, value in spent.items()}
    total = sum(spent.values())
    yield {
        "what": "compactor alone",
        "runs": runs,
        "turns": turns,
        "log_records": records,
        "events_per_s": rounded((last - first) / (last_at - first_at)),
        **shares,
        "postgres_part_of_cpu": rounded(spent.get("postgres_cpu_us", 0.0) / total) if total else None,
    }


def _fold(world: World, compactor: Service, records: int, processes: Processes) -> tuple[_Look, _Look]:
    """Wait until everything is applied; gives how things stood when a partition was ready, and at the end."""
    deadline = time.monotonic() + PATIENCE_S
    first: _Look | None = None
    with world.connect() as connection:
        while time.monotonic() < deadline:
            world.services.check()
            look = (time.monotonic(), applied(world, connection), processes.cpu_s())
            if first is None and restored(compactor) is not None:
                first = look
            if first is not None and look[1] >= records:
                return first, look
            time.sleep(_LOOK_S)
    raise TimeoutError(f"{records} records should have been applied within {PATIENCE_S:.0f} s")


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.compacting")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=1, help="completions of a run, each of 20 calls")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
