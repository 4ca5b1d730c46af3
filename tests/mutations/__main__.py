"""``python -m tests.mutations [NAME...]``: plant each mutation in its schedule, and print the table.

``--seeds N`` searches at random too: the mutation is planted in up to N fresh seeds of the simulation, and behind the
table stands after how many of them which checker spoke first. The exit code is 1 if a mutation was not caught in its
schedule, or if a checker spoke without one.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import SystemRandom

from tests.mutations.catalogue import MUTATIONS, by_name, clean, covered_table, planted, speaks, table
from tests.mutations.planting import Mutation
from tests.simulation.scenario import run_seed


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the mutations to try; default: all")
    parser.add_argument("--seeds", type=int, default=0, help="how many fresh seeds are tried for each")
    given = parser.parse_args()
    known = {mutation.name for mutation in MUTATIONS}
    if unknown := set(given.names) - known:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    chosen = [by_name(name) for name in given.names] or list(MUTATIONS)
    caught: dict[str, bool] = {}
    found: list[str] = []
    is_clean = True
    for mutation in chosen:
        began = time.monotonic()
        before, after = clean(mutation), planted(mutation)
        is_clean &= not before
        caught[mutation.name] = not before and speaks(mutation, after)
        said = "caught" if caught[mutation.name] else "NOT CAUGHT"
        _tell(f"{mutation.name}: {said}, {time.monotonic() - began:.1f} s")
        for problem in before:
            _tell(f"    without it: {problem}")
        if not caught[mutation.name] or given.names:
            for problem in after:
                _tell(f"    {problem}")
        if given.seeds:
            found.append(f"{mutation.name}: {_search(mutation, given.seeds)}")
            _tell(f"    {found[-1]}")
    sys.stdout.write(table(caught))
    if not given.names:
        sys.stdout.write(f"\n{covered_table()}")
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 0 if all(caught.values()) and is_clean else 1


def _search(mutation: Mutation, seeds: int) -> str:
    """Plant it in fresh seeds until a checker speaks."""
    chance = SystemRandom()
    for number in range(1, seeds + 1):
        seed = chance.randrange(10_000, 1 << 31)
        try:
            with mutation.plant():
                problems = run_seed(seed).problems()
        except Exception as error:  # noqa: BLE001 - what the fault did to the run is what was noticed
            problems = [f"raised: {error!r}"]
        if problems:
            return f"seed {seed}, the {number}., {problems[0].split(':')[0]}"
    return f"not in {seeds} seeds"


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
