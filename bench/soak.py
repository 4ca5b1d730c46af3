"""`python -m bench.soak [--minutes 10] [--rate 10]`: whether memory grows while the load does not.

So many runs of 20 steps are started each second. Resident memory of each service is looked at all the time; the first
third is warm-up. Growth is the slope of what remains (the median of the slopes between points that are half of it
apart, so that one garbage collection says nothing) over its length. It is growth if it is above both a twentieth of
what the service takes and 8 MiB; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from psycopg import sql

from bench.costs import Processes
from bench.driving import Plan, names, submit
from bench.printing import Figures, progress, show
from bench.world import World, metric, opened, own_stack
from devstack import Stack

_LOOK_S: Final = 2.0
_SAY_EVERY: Final = 15
_WARM_UP: Final = 1 / 3
_LEAST_GROWTH: Final = 8 << 20
_LEAST_PART: Final = 0.05

Looks = Sequence[tuple[float, int]]


def measure(stack: Stack, minutes: float, rate: int) -> Iterator[Figures]:
    """Keep the load up, and say of each service whether its memory grew."""
    with opened(stack) as world:
        started = world.start_all()
        processes = Processes({name: service.pid for name, service in started.items()})
        looks, runs = _load(world, processes, minutes * 60, rate)
        behind = metric(started["compactor"], "runfold_compactor_lag_records")
        ended = _ended(world)
    for name, points in looks.items():
        late = points[int(len(points) * _WARM_UP) :]
        resident = statistics.median(size for _, size in late)
        grown = slope(late) * (late[-1][0] - late[0][0])
        yield {
            "what": name,
            "minutes": minutes,
            "runs_started": runs,
            "runs_ended": ended,
            "compactor_behind_records": round(behind),
            "resident_mib": round(resident / (1 << 20), 1),
            "grown_mib": round(grown / (1 << 20), 2),
            "grows": grown > max(_LEAST_GROWTH, _LEAST_PART * resident),
        }


def slope(points: Looks) -> float:
    """Give the median slope, bytes a second, between points that are half of all apart."""
    half = len(points) // 2
    pairs = zip(points[:half], points[-half:], strict=True)
    return statistics.median((later - earlier) / (then - at) for (at, earlier), (then, later) in pairs)


def _load(world: World, processes: Processes, seconds: float, rate: int) -> tuple[Mapping[str, Looks], int]:
    """Start runs at an even rate; gives time and resident bytes of each service, and how many runs were started."""
    looks: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    outside, began, runs = world.producer(), time.monotonic(), 0
    for number in range(max(2, round(seconds / _LOOK_S))):
        due = round(rate * _LOOK_S)
        submit(world, Plan(), names(due), outside)
        runs += due
        time.sleep(max(0.0, began + (number + 1) * _LOOK_S - time.monotonic()))
        world.services.check()
        for name, size in processes.rss().items():
            looks[name].append((time.monotonic() - began, size))
        if number % _SAY_EVERY == 0:
            sizes = ", ".join(f"{name} {points[-1][1] / (1 << 20):.0f}" for name, points in looks.items())
            progress(f"{time.monotonic() - began:.0f} s, MiB: {sizes}")
    return looks, runs


def _ended(world: World) -> int:
    question = sql.SQL("select count(*) from {} where status = 'completed'").format(world.table("runs"))
    with world.connect() as connection:
        (count,) = connection.execute(question).fetchone() or (0,)
    return int(count)


def main(arguments: Sequence[str]) -> int:
    """Give 1 if the memory of a service grows."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=10, help="runs started a second")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        figures = show(measure(stack, given.minutes, given.rate))
    return 1 if any(each["grows"] for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
