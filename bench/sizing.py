"""`python -m bench.sizing [--runs 1000 ...]`: what an installation needs, from the constants of docs/sizing.md.

The page says what each constant and each formula means; this module is its arithmetic.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.installation import ROOT

PAGE: Final = ROOT / "docs" / "sizing.md"
DEFAULT_RUNS: Final = (1_000, 100_000, 10_000_000)
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_US: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Needs:
    """What the page's table has in a column; cores, processes and partitions are whole ones."""

    runs: int
    running: int
    steps_per_s: float
    completions_per_s: float
    executors: int
    executor_gib: float
    compactors: int
    partitions: int
    restore_s: float
    brokers: int
    broker_mib_per_s: float
    postgres_cores: int
    postgres_gib: float
    log_gib_a_day: float


def constants(text: str) -> dict[str, float]:
    """Read the page's table of constants: a name in code and a number begin each row."""
    rows = re.findall(r"^\| `([a-z_]+)` \| ([0-9.,]+) \|", text, flags=re.MULTILINE)
    return {name: float(value.replace(",", "")) for name, value in rows}


def needs(runs: int, known: Mapping[str, float]) -> Needs:
    """Compute what so many active runs need; the formulas stand on the page in the same order."""
    running = runs * known["running_part"]
    rate = running / known["seconds_a_step"]
    step = a_step(known)
    room = known["full_at"]
    memory = running * known["active_bytes"]
    executors = 1 + max(
        math.ceil(rate * step.executor_us * _US / room),
        math.ceil(memory / (known["executor_gib"] * _GIB)),
    )
    compactors = 1 + math.ceil(rate * step.events / (known["compactor_events_per_s"] * room))
    partitions = max(12, 2 * executors, 2 * compactors, math.ceil(running / known["running_a_partition"]))
    written = rate * step.log_bytes * known["replicas"]
    brokers = max(
        math.ceil(rate * step.kafka_us * _US * known["replicas"] / (known["broker_cores"] * room)),
        math.ceil(written / (known["broker_mib_per_s"] * _MIB)),
        math.ceil(6 * partitions * known["replicas"] / known["replicas_a_broker"]),
        int(known["replicas"]),
    )
    return Needs(
        runs=runs,
        running=round(running),
        steps_per_s=rate,
        completions_per_s=rate * known["completions_a_step"],
        executors=executors,
        executor_gib=memory / _GIB,
        compactors=compactors,
        partitions=partitions,
        restore_s=running / partitions * known["restore_us"] * _US,
        brokers=brokers,
        broker_mib_per_s=written / brokers / _MIB,
        postgres_cores=math.ceil(rate * step.postgres_us * _US / room),
        postgres_gib=runs * known["steps_a_run"] * step.postgres_bytes / _GIB,
        log_gib_a_day=rate * step.log_bytes * 86_400 / _GIB,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """What a step costs with its part of the completions."""

    executor_us: float
    kafka_us: float
    postgres_us: float
    events: float
    log_bytes: float
    postgres_bytes: float


def a_step(known: Mapping[str, float]) -> Step:
    """Add the completions to the calls that they ask for; a few are in what was measured of the calls."""
    completions = known["completions_a_step"]
    more = max(0.0, completions - known["completions_included"])
    before = known["steps_a_run"] * completions / 2

    def both(what: str) -> float:
        return known[what] + more * known[f"completion_{what}"]

    return Step(
        executor_us=both("executor_us") + completions * before * known["history_executor_us"],
        kafka_us=both("kafka_us"),
        postgres_us=both("postgres_us"),
        events=both("events"),
        log_bytes=both("log_bytes"),
        postgres_bytes=both("postgres_bytes"),
    )


def table(columns: Sequence[Needs]) -> str:
    """Give the page's table."""
    names = [
        ("active runs", [f"{each.runs:,}" for each in columns]),
        ("of which run at the same time", [f"{each.running:,}" for each in columns]),
        ("steps/s", [_text(each.steps_per_s) for each in columns]),
        ("completions/s", [_text(each.completions_per_s) for each in columns]),
        ("executor processes", [f"{each.executors:,}" for each in columns]),
        ("their memory for runs, GiB in all", [_text(each.executor_gib) for each in columns]),
        ("compactor processes", [f"{each.compactors:,}" for each in columns]),
        ("partitions", [f"{each.partitions:,}" for each in columns]),
        ("restore of a partition, s", [_text(each.restore_s) for each in columns]),
        ("brokers", [f"{each.brokers:,}" for each in columns]),
        ("written by each broker, MiB/s", [_text(each.broker_mib_per_s) for each in columns]),
        ("Postgres, cores", [f"{each.postgres_cores:,}" for each in columns]),
        ("Postgres, GiB of active runs", [_text(each.postgres_gib) for each in columns]),
        ("log, GiB a day before replication", [_text(each.log_gib_a_day) for each in columns]),
    ]
    (_, head), *rows = names
    lines = ["| active runs | " + " | ".join(head) + " |", "|---|" + "---:|" * len(head)]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(values) + " |" for name, values in rows)])


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004 - two digits are enough


def main(arguments: Sequence[str]) -> int:
    """Print the table for the constants of a page."""
    parser = argparse.ArgumentParser(prog="python -m bench.sizing")
    parser.add_argument("--runs", type=int, nargs="+", default=list(DEFAULT_RUNS), help="active runs")
    parser.add_argument("--page", type=Path, default=PAGE, help="a copy with constants of your own")
    given = parser.parse_args(arguments)
    known = constants(given.page.read_text(encoding="utf-8"))
    print(table([needs(runs, known) for runs in given.runs]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
