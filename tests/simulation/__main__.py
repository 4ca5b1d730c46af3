"""``python -m tests.simulation SEED [END]``: run one seed, or the seeds [SEED, END), and say what each broke.

One seed is printed before it runs, with the plan that it chooses; ``--trace`` prints its schedule step by step,
``--shrink`` looks for a smaller plan that still fails, and ``--faults kill,publish`` puts other faults in the place of
its own. Many seeds run on all cores (``--workers``), with progress; those that fail are listed at the end. The exit
code is 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

from runfold.testing.simulation.faults import ALL_FAULTS
from tests.simulation.many import run_many, say
from tests.simulation.scenario import Plan, run_seed
from tests.simulation.shrinking import shrink_seed


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("end", type=int, nargs="?", help="the seed behind the last one; default: SEED + 1")
    parser.add_argument("--faults", help=f"comma-separated, of: {', '.join(ALL_FAULTS)}")
    parser.add_argument("--trace", action="store_true", help="print what happened, step by step")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller plan that fails in the same way")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes for many seeds")
    given = parser.parse_args()
    faults = None if given.faults is None else [fault for fault in given.faults.split(",") if fault]
    if unknown := set(faults or ()) - set(ALL_FAULTS):
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; known are {', '.join(ALL_FAULTS)}")
    if given.end is None or given.end == given.seed + 1:
        return _one(given.seed, Plan.of(given.seed, faults), traced=given.trace, shrunk=given.shrink)
    if given.trace or given.shrink or faults is not None:
        parser.error("--trace, --shrink and --faults are for one seed")
    return _many(range(given.seed, given.end), given.workers)


def _one(seed: int, plan: Plan, *, traced: bool, shrunk: bool) -> int:
    say(f"seed {seed}: {plan}\n")
    if shrunk:
        plan = shrink_seed(seed, plan, say)
    began = time.monotonic()
    try:
        outcome = run_seed(seed, plan=plan, traced=traced)
    except Exception:  # noqa: BLE001 - whatever it is, it is what this seed found
        say(f"    raised {traceback.format_exc()}")
        return 1
    if outcome.trace is not None:
        say("\n".join([*outcome.trace.lines, ""]))
    problems = outcome.problems()
    ending = outcome.ending
    say(
        f"seed {seed}: {outcome.seconds:.0f} virtual seconds in {time.monotonic() - began:.2f} s, "
        f"{len(ending.downstream.effects)} effects, {sum(ending.log_ends)} log records, {outcome.injected}, "
        f"digest {outcome.digest}: {'BROKEN' if problems else 'ok'}\n"
    )
    for problem in problems:
        say(f"    {problem}\n")
    return 1 if problems else 0


def _many(seeds: range, workers: int) -> int:
    say(f"seeds {seeds.start} to {seeds.stop - 1} on {workers} processes\n")
    tally = run_many(seeds, workers, say)
    say(f"{tally.line()}\n{dict(tally.injected.most_common())}\n")
    for report in tally.broken:
        say(f"BROKEN: python -m tests.simulation {report.seed} --trace   # {report.problems[0].splitlines()[0]}\n")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
