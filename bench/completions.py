"""`python -m bench.completions [--runs 200] [--repeats 3]`: what a completion costs, beside the calls that it asks for.

Runs of as many calls, asked for by a single completion or by one each: the difference is the completions'. A model is
told the whole conversation each time, so the executor pays for what stands before: short runs and long ones tell both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench import volume
from bench.costs import spent_us
from bench.driving import Plan, drive
from bench.printing import Figures, progress, rounded, show
from bench.steps import warm_up
from bench.world import opened, own_stack
from devstack import Stack

_WARM_UP_S: Final = 60.0
_PAYLOAD: Final = 100


_Shape = tuple[int, int]
"""Completions, and calls that each of them asks for."""

_OTHERS: Final = ("compactor", "kafka", "postgres")


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two kinds of runs with so many calls each, which differ in their completions alone."""

    calls: int

    @property
    def shapes(self) -> tuple[_Shape, _Shape]:
        """A completion for all calls; one for each of them."""
        return (1, self.calls), (self.calls, 1)

    @property
    def more(self) -> int:
        """How many completions more the second kind has."""
        return self.calls - 1

    @property
    def before(self) -> int:
        """How many more stand before its completions, added up; the last one of a run asks for nothing."""
        return self.calls * (self.calls + 1) // 2 - 1


_SHORT: Final = _Pair(20)
_LONG: Final = _Pair(80)


def measure(stack: Stack, runs: int, repeats: int) -> Iterator[Figures]:
    """Let runs of both kinds and both lengths end, in turn, and compare."""
    spent = _spent(stack, runs, repeats)
    progress("bytes of both kinds")
    one, each = (next(volume.measure(stack, runs, *shape, _PAYLOAD)) for shape in _SHORT.shapes)
    a_completion = _SHORT.calls / _SHORT.more
    # Extra = more * completion + before * history, for both lengths.
    short, long = (_extra(spent, pair, "executor_cpu_us") for pair in (_SHORT, _LONG))
    scale = _LONG.more / _SHORT.more
    history = (long - scale * short) / (_LONG.before - scale * _SHORT.before)
    others = {f"{name}_cpu_us": _extra(spent, _LONG, f"{name}_cpu_us") / _LONG.more for name in _OTHERS}
    yield {
        "what": "a completion",
        "runs": runs,
        "repeats": repeats,
        "executor_cpu_us": rounded((short - _SHORT.before * history) / _SHORT.more),
        "executor_cpu_us_for_each_before": rounded(history),
        **{name: rounded(value) for name, value in others.items()},
        **{name: rounded((each[name] - one[name]) * a_completion) for name in ("log_bytes", "postgres_table_bytes")},
    }


def _spent(stack: Stack, runs: int, repeats: int) -> Mapping[_Shape, list[Mapping[str, float]]]:
    """Give the CPU microseconds a run of each process, for every shape and repeat."""
    spent: defaultdict[_Shape, list[Mapping[str, float]]] = defaultdict(list)
    with opened(stack) as world:
        processes = world.processes(world.start_all())
        warm_up(world, processes, _WARM_UP_S)
        for repeat in range(repeats):
            for turns, calls in (*_SHORT.shapes, *_LONG.shapes):
                before = processes.cpu_s()
                drive(world, Plan(turns=turns, calls=calls), runs)
                spent[turns, calls].append(spent_us(before, processes.cpu_s(), runs))
            progress(f"repeat {repeat + 1} of {repeats}: measured")
    return spent


def _extra(spent: Mapping[_Shape, list[Mapping[str, float]]], pair: _Pair, name: str) -> float:
    """Give how much more a run of the second kind costs, medians over the repeats."""
    one, each = (statistics.median(costs[name] for costs in spent[shape]) for shape in pair.shapes)
    return each - one


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.completions")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
