"""`python -m bench.beside [--long 1000] [--runs 50]`: steps of runs beside others in a long tool.

The same runs alone and beside the long ones, in turn: once with tools that wait on the event loop, once with sync ones,
each of which sits in a thread of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from psycopg import sql

from bench.driving import Driven, Plan, drive, names, pattern_of, submit
from bench.printing import Figures, p99, progress, rounded, show
from bench.steps import gaps_of, starts_in, warm_up
from bench.world import PATIENCE_S, World, opened, own_stack
from devstack import Stack

_WARM_UP_S: Final = 30.0
_LOOK_S: Final = 0.05
_KINDS: Final = {"alone": None, "beside async tools": "rest", "beside sync tools": "hold"}


def measure(stack: Stack, long: int, runs: int, seconds: float, repeats: int) -> Iterator[Figures]:
    """Measure each kind in turn, ``repeats`` times; gives medians, and the longest step of all repeats."""
    driven: defaultdict[str, list[Driven]] = defaultdict(list)
    with opened(stack, times=True) as world:
        started = world.start_all()
        warm_up(world, world.processes(started), _WARM_UP_S)
        for repeat in range(repeats):
            for kind, tool in _KINDS.items():
                if tool is None:
                    driven[kind].append(drive(world, Plan(), runs))
                else:
                    driven[kind].append(_beside(world, tool, long, seconds, runs))
                progress(f"repeat {repeat + 1} of {repeats}: {kind}: measured")
        for service in started.values():
            world.services.stop(service)
        starts = starts_in(world.installation.folder / "times")
    for kind, rounds in driven.items():
        gaps = [sorted(gaps_of(each, starts)) for each in rounds]
        yield {
            "what": f"a step, {kind}",
            "runs": runs,
            "long_runs": 0 if _KINDS[kind] is None else long,
            "p50_ms": rounded(statistics.median(statistics.median(each) for each in gaps) * 1000),
            "p99_ms": rounded(statistics.median(map(p99, gaps)) * 1000),
            "max_ms": rounded(max(each[-1] for each in gaps) * 1000),
            "repeats": repeats,
        }


def _beside(world: World, tool: str, long: int, seconds: float, runs: int) -> Driven:
    """Drive runs while ``long`` others sit in one call of a tool each; returns when those have ended, too."""
    ids = names(long)
    submit(world, Plan(calls=1, call=(tool, {"ms": int(seconds * 1000)})), ids)
    opened_calls = sql.SQL("select count(*) from {} where run_id like %s").format(world.table("open_calls"))
    ended = sql.SQL("select count(*) from {} where run_id like %s and status = 'completed'").format(world.table("runs"))
    _await(world, opened_calls, ids)
    began = time.monotonic()
    driven = drive(world, Plan(), runs)
    if time.monotonic() - began > seconds / 2:
        raise TimeoutError(f"the long tools may have ended before the others were measured: --seconds {2 * seconds:g}")
    _await(world, ended, ids)
    return driven


def _await(world: World, question: sql.Composed, ids: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with world.connect() as connection:
        while (connection.execute(question, (pattern_of(ids),)).fetchone() or (0,))[0] < len(ids):
            world.services.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(ids)} long runs should have begun, or ended, within {PATIENCE_S:.0f} s")
            time.sleep(_LOOK_S)


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside")
    parser.add_argument("--long", type=int, default=1000, help="runs that are in a long tool")
    parser.add_argument("--runs", type=int, default=50, help="runs whose steps are measured")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the long tools take")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.long, given.runs, given.seconds, given.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
