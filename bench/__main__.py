"""`python -m bench [--runs 1 100 1000] [--repeats 5] [--flush default|every|both] ...`: see ``bench.steps``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.driving import CALLS, Plan
from bench.printing import show
from bench.steps import Load, measure
from bench.world import FLUSHES, PARTITIONS, own_stack


def main(arguments: Sequence[str]) -> int:
    """Measure at each number of concurrent runs."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Steps per second, and the time of a step.")
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 100, 1000], help="concurrent runs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--flush", choices=[*FLUSHES, "both"], default="both", help="every: flush.messages=1")
    parser.add_argument("--executors", type=int, default=1, help="processes")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--turns", type=int, default=1, help="completions of a run")
    parser.add_argument("--calls", type=int, default=CALLS, help="of each completion, one after the other")
    given = parser.parse_args(arguments)
    load = Load(
        runs=given.runs,
        plan=Plan(turns=given.turns, calls=given.calls),
        repeats=given.repeats,
        flushes=FLUSHES if given.flush == "both" else [given.flush],
        executors=given.executors,
        partitions=given.partitions,
    )
    with own_stack() as stack:
        show(measure(stack, load))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
