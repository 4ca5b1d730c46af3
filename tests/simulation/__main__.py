"""``python -m tests.simulation SEED [END]``: run one seed, or the seeds [SEED, END), and say what each broke.

Each seed is printed before it runs, with the faults that it chooses. ``--faults kill,publish`` puts others in their
place, to see which of them it takes. The exit code is 1 if anything was violated. A seed that takes a minute of
real time spins: the program ends and says where.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import traceback

from tests.simulation.faults import ALL_FAULTS
from tests.simulation.scenario import Plan, run_seed

SPINNING_S = 60.0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("end", type=int, nargs="?", help="the seed behind the last one; default: SEED + 1")
    parser.add_argument("--faults", help=f"comma-separated, of: {', '.join(ALL_FAULTS)}")
    given = parser.parse_args()
    faults = None if given.faults is None else [fault for fault in given.faults.split(",") if fault]
    if unknown := set(faults or ()) - set(ALL_FAULTS):
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; known are {', '.join(ALL_FAULTS)}")
    seeds = range(given.seed, given.seed + 1 if given.end is None else given.end)
    began = time.monotonic()
    broken = [seed for seed in seeds if not _holds(seed, faults)]
    _say(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(broken)} broken {broken or ''}\n")
    return 1 if broken else 0


def _holds(seed: int, faults: list[str] | None) -> bool:
    plan = Plan.of(seed, faults)
    _say(f"seed {seed}: {', '.join(plan.faults) or 'no faults'}; {plan.runs} runs of {', '.join(plan.tools)}; ")
    began = time.monotonic()
    faulthandler.dump_traceback_later(SPINNING_S, exit=True)
    try:
        outcome = run_seed(seed, faults)
    except Exception:  # noqa: BLE001 - whatever it is, it is what this seed found
        problems = [f"raised {traceback.format_exc()}"]
    else:
        problems = outcome.problems()
        effects, records = len(outcome.ending.downstream.effects), sum(outcome.ending.log_ends)
        _say(f"{effects} effects, {records} records, digest {outcome.digest[:8]}; ")
    finally:
        faulthandler.cancel_dump_traceback_later()
    _say(f"{time.monotonic() - began:.2f} s: {'ok' if not problems else 'BROKEN'}\n")
    for problem in problems:
        _say(f"    {problem}\n")
    return not problems


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
