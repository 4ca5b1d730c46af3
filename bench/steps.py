"""Throughput and the time of a step, with every service running; the bare loop of the same minute beside it.

A step is one durable tool execution: request appended and acknowledged, tool called, outcome appended. Each repeat
measures every number of runs with every kind of flush, the bare loop directly before each, so that what else the
machine does meanwhile falls on all of them alike; the figures are medians over the repeats.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.appending import bare_prefix, bare_rate
from bench.costs import Processes, spent_us
from bench.driving import Driven, Plan, drive
from bench.printing import Figures, p99, progress, rounded
from bench.world import PARTITIONS, Flush, World, opened, set_flush
from devstack import Stack

_WARM_UP_RUNS: Final = 100
# Warm: so many rounds have not been cheaper by more than a twentieth than the cheapest before them.
_FLAT_ROUNDS: Final = 4
_FLAT: Final = 0.95
# Few runs are over in milliseconds: as many rounds of them as give so many runs.
_LEAST_RUNS: Final = 20
# The same of the bare loop, which is faster: so many steps in all, but no more than so many one after the other.
_BARE_STEPS: Final = 20_000
_BARE_LENGTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured.

    Attributes:
        runs: Numbers of concurrent runs.
        plan: What each run does.
        repeats: Of all.
        flushes: How often Kafka writes to the disk: as it does by default, or before each acknowledgement.
        executors: Processes.
        partitions: Of each topic.
        warm_up_s: How long the warm-up may take at most. On two cores that were not quiet, a broker that had just
            started was warm after 46 to 59 s, the CPU of a step halved by then; our own processes after 10 to 25 s.
    """

    runs: Sequence[int]
    plan: Plan = field(default_factory=Plan)
    repeats: int = 5
    flushes: Sequence[Flush] = ("default",)
    executors: int = 1
    partitions: int = PARTITIONS
    warm_up_s: float = 90.0


@dataclass(frozen=True, slots=True)
class _Repeat:
    """``rounds``: the runs of one repeat, of which the last round says how far the compactor was behind."""

    rounds: list[Driven]
    bare: float
    cpu_us: Mapping[str, float]


def measure(stack: Stack, load: Load) -> Iterator[Figures]:
    """Measure, and give the figures of each kind of flush and each number of runs."""
    found: defaultdict[tuple[Flush, int], list[_Repeat]] = defaultdict(list)
    with opened(stack, partitions=load.partitions, times=True) as world:
        world.installation.runfold("setup", "--topic-prefix", bare_prefix(world))
        started = world.start_all(load.executors)
        processes = world.processes(started)
        warm_up_s = warm_up(world, processes, load.warm_up_s)
        for repeat in range(load.repeats):
            for flush in load.flushes:
                set_flush(world.bootstrap, [world.topic("log"), world.topic("bare.log")], flush)
                for runs in load.runs:
                    found[flush, runs].append(_repeat(world, processes, load.plan, runs))
                    progress(f"repeat {repeat + 1} of {load.repeats}: {runs} runs, flush {flush}: measured")
        for service in started.values():
            world.services.stop(service)
        starts = starts_in(world.installation.folder / "times")
    plan = load.plan
    about = {"executors": load.executors, "partitions": load.partitions, "turns": plan.turns, "calls": plan.calls}
    for (flush, runs), repeats in found.items():
        summaries = [_summary(plan, each, starts) for each in repeats]
        medians = {key: rounded(statistics.median(each[key] for each in summaries)) for key in summaries[0]}
        total = {"runs": runs, "steps": runs * plan.steps, **medians}
        yield {"what": "steps", "flush": flush, **total, **about, "repeats": load.repeats, "warm_up_s": warm_up_s}


def warm_up(world: World, processes: Processes, at_most_s: float) -> float:
    """Run until a step does not become cheaper any more: Java compiles what is hot; gives the seconds that it took.

    The CPU that all processes take for a step says it better than the rate, which others on the machine lower.
    """
    began, costs = time.monotonic(), list[float]()
    while time.monotonic() - began < at_most_s:
        before = processes.cpu_s()
        drive(world, Plan(), _WARM_UP_RUNS)
        costs.append(sum(spent_us(before, processes.cpu_s(), _WARM_UP_RUNS * Plan().steps).values()))
        early, late = costs[:-_FLAT_ROUNDS], costs[-_FLAT_ROUNDS:]
        if early and min(late) > _FLAT * min(early):
            break
    took = round(time.monotonic() - began, 1)
    progress(f"warm after {took} s; CPU microseconds a step, round by round: {[round(cost) for cost in costs]}")
    return took


def _repeat(world: World, processes: Processes, plan: Plan, runs: int) -> _Repeat:
    bare = bare_rate(world, runs, max(plan.calls, min(_BARE_STEPS // runs, _BARE_LENGTH)))
    rounds = -(-_LEAST_RUNS // runs)
    before = processes.cpu_s()
    driven = [drive(world, plan, runs) for _ in range(rounds)]
    return _Repeat(driven, bare, spent_us(before, processes.cpu_s(), rounds * runs * plan.steps))


def starts_in(folder: Path) -> dict[str, list[float]]:
    """Read when each step of each run began, by all executors: a run may have moved from one to another."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for file in folder.glob("*.json"):
        for run_id, times in json.loads(file.read_text(encoding="utf-8")).items():
            found[run_id] += times
    return {run_id: sorted(times) for run_id, times in found.items()}


def gaps_of(driven: Driven, starts: Mapping[str, list[float]]) -> Iterator[float]:
    """Give the seconds of each step: from its start to the start of the next in the same run."""
    for run_id in driven.run_ids:
        for earlier, later in pairwise(starts[run_id]):
            yield later - earlier


def _summary(plan: Plan, repeat: _Repeat, starts: Mapping[str, list[float]]) -> dict[str, Any]:
    """Summarise one repeat."""
    gaps: list[float] = []
    rates: list[float] = []
    ended = 0.0
    for driven in repeat.rounds:
        times = [starts[run_id] for run_id in driven.run_ids]
        gaps += gaps_of(driven, starts)
        began, ended = min(each[0] for each in times), max(each[-1] for each in times)
        rates.append(len(times) * (plan.steps - 1) / (ended - began))
    gaps.sort()
    rate, (records, seconds) = statistics.median(rates), repeat.rounds[-1].behind(ended)
    return {
        "steps_per_s": rate,
        "p50_ms": statistics.median(gaps) * 1000,
        "p99_ms": p99(gaps) * 1000,
        "bare_loop_steps_per_s": repeat.bare,
        "ratio_to_bare_loop": rate / repeat.bare,
        "compactor_behind_records": records,
        "compactor_behind_s": seconds,
        **repeat.cpu_us,
    }
