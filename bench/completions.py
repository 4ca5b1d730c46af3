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
"""Completions, and calls that each of them asks for; one completion more ends the run."""
_Spent = Mapping[_Shape, Mapping[str, float]]

_SHORT: Final = 20
_LONG: Final = 80
_OTHERS: Final = ("compactor_cpu_us", "kafka_cpu_us", "postgres_cpu_us")


def shapes(calls: int) -> tuple[_Shape, _Shape]:
    """Give two kinds of runs with so many calls: one completion for all of them, and one for each."""
    return (1, calls), (calls, 1)


def completions_before(shape: _Shape) -> int:
    """Add up, over the completions of a run, how many stand before each."""
    return shape[0] * (shape[0] + 1) // 2


def fitted(costs: Mapping[_Shape, float]) -> tuple[float, float]:
    """Find what a completion costs, and what more for each one before it, from runs of both kinds and both lengths.

    The calls of both kinds are the same, so extra cost = extra completions * completion + extra before * history.
    """
    extra, more, before = [], [], []
    for calls in (_SHORT, _LONG):
        one, each = shapes(calls)
        extra.append(costs[each] - costs[one])
        more.append(each[0] - one[0])
        before.append(completions_before(each) - completions_before(one))
    history = (extra[1] * more[0] - extra[0] * more[1]) / (before[1] * more[0] - before[0] * more[1])
    return (extra[0] - before[0] * history) / more[0], history


def measure(stack: Stack, runs: int, repeats: int) -> Iterator[Figures]:
    """Let runs of both kinds and both lengths end, in turn, and compare."""
    spent = _spent(stack, runs, repeats)
    progress("bytes of both kinds")
    sizes = {shape: next(volume.measure(stack, runs, *shape, _PAYLOAD)) for shape in shapes(_SHORT)}
    completion, history = fitted({shape: costs["executor_cpu_us"] for shape, costs in spent.items()})
    yield {
        "what": "a completion",
        "runs": runs,
        "repeats": repeats,
        "executor_cpu_us": rounded(completion),
        "executor_cpu_us_for_each_before": rounded(history),
        # Of the short runs: the longer they are, the more of the time's own work is counted, above all commits.
        **{name: rounded(_a_completion(spent, name)) for name in _OTHERS},
        **{name: rounded(_SHORT * _a_completion(sizes, name)) for name in ("log_bytes", "postgres_table_bytes")},
    }


def _a_completion(figures: _Spent, name: str) -> float:
    """Give the difference that a completion makes in runs of few calls."""
    one, each = shapes(_SHORT)
    return (figures[each][name] - figures[one][name]) / (each[0] - one[0])


def _spent(stack: Stack, runs: int, repeats: int) -> _Spent:
    """Give the CPU microseconds a run of each process, medians over the repeats."""
    found: defaultdict[_Shape, list[Mapping[str, float]]] = defaultdict(list)
    with opened(stack) as world:
        processes = world.processes(world.start_all())
        warm_up(world, processes, _WARM_UP_S)
        for repeat in range(repeats):
            for turns, calls in (*shapes(_SHORT), *shapes(_LONG)):
                before = processes.cpu_s()
                drive(world, Plan(turns=turns, calls=calls), runs)
                found[turns, calls].append(spent_us(before, processes.cpu_s(), runs))
            progress(f"repeat {repeat + 1} of {repeats}: measured")
    return {
        shape: {name: statistics.median(costs[name] for costs in repeated) for name in repeated[0]}
        for shape, repeated in found.items()
    }


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
