"""Many seeds on all cores: progress while they run, and what they came to."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.scenario import run_seed

SPINNING_S = 60
"""A seed that takes so much of a processor never comes to its end: its loop spins."""


class Spins(SystemExit):
    """A seed's loop never waits. Nothing but an exit gets through an event loop and everything that runs on it."""


@dataclass(frozen=True, slots=True)
class Report:
    """One seed, done.

    Attributes:
        seconds: Virtual ones.
        injected: Faults by name.
    """

    seed: int
    problems: tuple[str, ...]
    digest: str
    seconds: float
    effects: int
    records: int
    injected: dict[str, int]


@dataclass
class Tally:
    """All seeds so far."""

    began: float = field(default_factory=time.monotonic)
    seeds: int = 0
    hours: float = 0.0
    effects: int = 0
    records: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    broken: list[Report] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Count one more."""
        self.seeds += 1
        self.hours += report.seconds / 3600
        self.effects += report.effects
        self.records += report.records
        self.injected.update(report.injected)
        if report.problems:
            self.broken.append(report)

    @property
    def faults(self) -> int:
        """Faults injected; hiccups, which are no faults, are left out."""
        return sum(count for name, count in self.injected.items() if name != "hiccup")

    def line(self) -> str:
        """Say how it goes, in one line."""
        took = max(time.monotonic() - self.began, 0.001)
        return (
            f"{self.seeds} seeds, {self.hours:.1f} simulated hours, {self.faults} faults, {self.effects} effects, "
            f"{self.records} log records, {len(self.broken)} broken, in {took:.0f} s: a second {self.seeds / took:.1f} "
            f"seeds, {self.hours / took:.3f} simulated hours, {self.faults / took:.1f} faults"
        )


def run_many(seeds: Iterable[int], workers: int, say: Callable[[str], object], most_broken: int = 20) -> Tally:
    """Run seeds on ``workers`` processes; stops early when ``most_broken`` of them are."""
    tally, told = Tally(), time.monotonic()
    for report in _reports(seeds, workers):
        tally.add(report)
        for problem in report.problems:
            say(f"seed {report.seed}: {problem}\n")
        if time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            say(f"{tally.line()}\n")
        if len(tally.broken) >= most_broken:
            break
    return tally


_TELL_S = 10.0


def _reports(seeds: Iterable[int], workers: int) -> Iterator[Report]:
    if workers <= 1:
        yield from map(report_of, seeds)
        return
    # Spawned, not forked: a worker is as fresh as a command.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=_begin, maxtasksperchild=2000) as pool:
        yield from pool.imap_unordered(report_of, seeds, chunksize=4)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(3)


def report_of(seed: int) -> Report:
    """Run a seed and say what came of it, whatever that is."""
    try:
        with _alarm(seed):
            outcome = run_seed(seed)
            problems = tuple(outcome.problems())
    except (Exception, Spins):  # noqa: BLE001 - whatever it is, it is what this seed found
        return Report(seed, (f"raised {traceback.format_exc()}",), "", 0.0, 0, 0, {})
    finally:
        if seed % _COLLECT_EVERY == 0:
            gc.collect()
    ending = outcome.ending
    effects, records = len(ending.downstream.effects), sum(ending.log_ends)
    return Report(seed, problems, outcome.digest, outcome.seconds, effects, records, outcome.injected)


_COLLECT_EVERY = 10


@contextmanager
def _alarm(seed: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Spins(f"seed {seed} has taken {SPINNING_S} s of a processor")

    before = signal.signal(signal.SIGVTALRM, ring)
    # Again and again: the loop is run once more when it is closed.
    signal.setitimer(signal.ITIMER_VIRTUAL, SPINNING_S, 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def say(text: str) -> None:
    """Write to the terminal at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
