"""``python -m tests.chaos MINUTES [--seed N] [--faults kill,broker]``: chaos on real processes and real servers.

Starts its own Kafka and Postgres (or takes those of the environment, whose faults are then left out), keeps hundreds
of runs in flight under a seeded schedule of faults, lets them end without faults, and judges. The seed is printed
first and fixes the schedule, the runs and every decision of the people; real processes and real time are not
byte-identical, so the same seed gives the same faults, not the same interleaving. Exit code 1: something was violated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from devstack import Stack
from tests.chaos.chaos import IN_FLIGHT, Plan, run
from tests.chaos.schedule import ALL_GROUPS

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("minutes", type=float, help="faults and drain together; the last 40 s are without faults")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--faults", help=f"comma-separated, of: {', '.join(ALL_GROUPS)}")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="runs in flight; default: %(default)s")
    given = parser.parse_args()
    groups = ALL_GROUPS if given.faults is None else tuple(name for name in given.faults.split(",") if name)
    if unknown := set(groups) - set(ALL_GROUPS):
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; known are {', '.join(ALL_GROUPS)}")
    _say(f"chaos: seed {given.seed}, {given.minutes:g} minutes, faults: {', '.join(groups) or 'none'}")
    plan = Plan(given.seed, 60 * given.minutes, groups, given.in_flight)
    with Stack.start(_ROOT, services=("kafka", "postgres")) as stack:
        folder = Path(tempfile.mkdtemp(prefix="runfold-chaos-"))
        report = run(stack, folder, plan, _say)
    for line in report.lines():
        _say(line)
    if report.problems:
        _say(f"the logs of the services: {folder / 'logs'}")
    return 1 if report.problems else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
