"""`python -m bench.slow [--runs 100 1000 10000] [--ms 50]`: tools that take as long as real ones do.

Ideal is what nothing but the tool would allow (runs / time of the tool), but no more than the same number of runs
with a tool that does nothing reaches in the same minute: what the cores allow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from bench.driving import CALLS, Plan
from bench.printing import Figures, rounded, show
from bench.steps import Load
from bench.steps import measure as measure_steps
from bench.world import own_stack
from devstack import Stack

_KEPT = ("runs", "steps_per_s", "p50_ms", "p99_ms", "executor_cpu_us", "compactor_behind_s")
_WARM_UP_S = 30.0


def measure(stack: Stack, runs: Sequence[int], ms: int, repeats: int) -> Iterator[Figures]:
    """Measure at each number of concurrent runs."""
    for count in runs:
        slow_plan = Plan(calls=CALLS, call=("rest", {"ms": ms}))
        (quick,) = measure_steps(stack, Load([count], repeats=repeats, warm_up_s=_WARM_UP_S))
        (slow,) = measure_steps(stack, Load([count], slow_plan, repeats, warm_up_s=_WARM_UP_S))
        ideal = min(count / (ms / 1000), quick["steps_per_s"])
        yield {
            "what": f"tools of {ms} ms",
            **{name: slow[name] for name in _KEPT if name in slow},
            "noop_steps_per_s": quick["steps_per_s"],
            "ideal_steps_per_s": rounded(ideal),
            "part_of_ideal": rounded(slow["steps_per_s"] / ideal),
        }


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.slow")
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--ms", type=int, default=50, help="how long the tool takes")
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.ms, given.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
