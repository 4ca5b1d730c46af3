"""`python -m bench.report [--out bench-report] [--only NAME ...]`: every measurement at 1x, 4x and 16x, as curves.

Each size has an installation of its own on the same servers. Writes ``figures.jsonl`` and an SVG file for each curve.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import chart, compacting, memory, restoring, steps, volume, wake
from bench.driving import CALLS, Plan
from bench.printing import Figures, progress, tabulate
from bench.world import PARTITIONS, own_stack
from demo.installation import ROOT
from devstack import Stack

_CPU: Final = ("executor_cpu_us", "compactor_cpu_us", "postgres_cpu_us", "kafka_cpu_us")
_FACTORS: Final = (1, 4, 16)
_WARM_UP_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What 1x is.

    Attributes:
        runs: At once; ``partitions``: of each topic; ``turns``: completions of a run, each of 20 calls.
        fixed_runs: Where something else than their number grows.
        waiting: Runs that wait beside those that are woken.
        prefilled: Runs in the log that the compactor finds.
        restored: Active runs of the partition that is taken over.
        repeats: Of the throughput.
    """

    runs: int = 50
    partitions: int = 4
    turns: int = 1
    fixed_runs: int = 50
    waiting: int = 100
    prefilled: int = 50
    restored: int = 50
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Curve:
    """One measurement at sizes that grow.

    Attributes:
        x: What grows; ``sizes``: how much of it.
        measure: Gives the figures at a size.
        charts: Title -> the figures that are drawn in one chart.
    """

    x: str
    sizes: Sequence[int]
    measure: Callable[[Stack, int], Iterable[Figures]]
    charts: Mapping[str, Sequence[str]]


def curves(sizes: Sizes) -> dict[str, Curve]:
    """Name everything that is measured."""
    rates = {"Steps a second": ["steps_per_s", "bare_loop_steps_per_s"], "CPU microseconds a step": _CPU}
    behind = {"Seconds that the compactor is behind at the end": ["compactor_behind_s"]}

    def load(runs: int, turns: int = sizes.turns, partitions: int = PARTITIONS) -> steps.Load:
        # Only the first of them meets a broker that is cold, and the bare loop beside it says so.
        return steps.Load([runs], Plan(turns=turns), sizes.repeats, partitions=partitions, warm_up_s=_WARM_UP_S)

    return {
        "runs": Curve(
            "concurrent runs",
            _grown(sizes.runs),
            lambda stack, size: steps.measure(stack, load(size)),
            {**rates, **behind, "Milliseconds of a step": ["p50_ms", "p99_ms"]},
        ),
        "partitions": Curve(
            "partitions",
            _grown(sizes.partitions),
            lambda stack, size: steps.measure(stack, load(sizes.fixed_runs, partitions=size)),
            rates,
        ),
        "length": Curve(
            "completions of a run, 20 steps each",
            _grown(sizes.turns),
            lambda stack, size: steps.measure(stack, load(sizes.fixed_runs, turns=size)),
            {**rates, **behind},
        ),
        "wake": Curve(
            "runs that wait beside the one that is woken",
            _grown(sizes.waiting),
            lambda stack, size: [_named("p50_ms", wake.measure(stack, 30, size))],
            {"Milliseconds until a run goes on, p50": [*_WAKES]},
        ),
        "volume": Curve(
            "completions of a run, 20 steps each",
            _grown(sizes.turns),
            lambda stack, size: volume.measure(stack, sizes.fixed_runs, size, CALLS, 100),
            {"Bytes a step": ["payload_bytes", "log_bytes", "postgres_row_bytes", "postgres_table_bytes"]},
        ),
        "memory": Curve(
            "completions that a run has behind it",
            _grown(sizes.turns),
            lambda stack, size: memory.measure(stack, (sizes.fixed_runs, 4 * sizes.fixed_runs), size),
            {"Resident bytes a run": ["active", "waiting", "at_rest"]},
        ),
        "compactor": Curve(
            "runs in the log",
            _grown(sizes.prefilled),
            lambda stack, size: compacting.measure(stack, size, sizes.turns),
            {"Events a second, the compactor alone": ["events_per_s"]},
        ),
        "restore": Curve(
            "active runs of a partition",
            _grown(sizes.restored),
            lambda stack, size: [_named("claim_to_restored_s", restoring.measure(stack, size, sizes.turns))],
            {"Seconds from claim to restored": ["restore from the log", "restore from snapshots"]},
        ),
    }


_WAKES: Final = (
    "run_started to first request",
    "approval to resumed, run in memory",
    "approval to resumed, run a row",
)


def _grown(size: int) -> list[int]:
    return [size * factor for factor in _FACTORS]


def _named(figure: str, measured: Iterator[Figures]) -> Figures:
    """Make one line of several that measure different things: each thing with one of its figures."""
    return {each["what"]: each[figure] for each in measured}


def report(stack: Stack, wanted: Mapping[str, Curve], folder: Path) -> list[Figures]:
    """Measure each curve, and write it as soon as it is known."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Figures] = []
    with (folder / "figures.jsonl").open("w", encoding="utf-8") as lines:
        for name, curve in wanted.items():
            began = time.monotonic()
            measured: list[Figures] = []
            for size in curve.sizes:
                for figures in curve.measure(stack, size):
                    measured.append({"curve": name, "size": size, **figures})
                    print(json.dumps(measured[-1]), flush=True)
                    print(json.dumps(measured[-1]), file=lines, flush=True)
            for number, (title, keys) in enumerate(curve.charts.items(), start=1):
                drawn = {key: [each[key] for each in measured] for key in keys if key in measured[0]}
                chart.draw(folder / f"{name}-{number}.svg", title, curve.x, curve.sizes, drawn)
            progress(f"{name}: done after {time.monotonic() - began:.0f} s")
            tabulate(measured)
            found += measured
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.report")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-report", help="the folder that is written")
    parser.add_argument("--only", nargs="+", choices=list(curves(Sizes())), help="some of the curves")
    for name in Sizes.__dataclass_fields__:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Sizes(), name), help="at 1x")
    given = parser.parse_args(arguments)
    sizes = Sizes(**{name: getattr(given, name) for name in Sizes.__dataclass_fields__})
    wanted = {name: curve for name, curve in curves(sizes).items() if given.only is None or name in given.only}
    with own_stack() as stack:
        report(stack, wanted, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
