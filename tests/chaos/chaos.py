"""One run of the chaos: faults on, faults off, drain, and the judgement."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import psycopg
from confluent_kafka import KafkaException

from demo.errors import DemoError
from demo.installation import Installation
from demo.processes import Services
from demo.world import World
from devstack import Stack
from tests.chaos.faults import EXECUTORS, Injector
from tests.chaos.fleet import Fleet, Role
from tests.chaos.report import Report, figures, take_overs
from tests.chaos.schedule import ALL_GROUPS, GROUPS, schedule
from tests.crowd.aftermath import Aftermath, is_applied, is_settled
from tests.crowd.checkers import judge
from tests.crowd.installing import set_up
from tests.crowd.names import KEYLESS
from tests.crowd.people import Pace, People
from tests.crowd.script import Script

DRAIN_S: Final = 40.0
"""Of the whole time, what is left without faults for the runs to end: a call in doubt takes 13 s and a person."""
_DRAIN_AT_MOST_S: Final = 120.0
_SETTLED_S: Final = 60.0
_SHORTEST_S: Final = 20.0
_SAY_EVERY_S: Final = 5.0
_TICK_S: Final = 0.1
_LATENCY_S: Final = (0.05, 0.6)
_FLEET: Final[dict[Role, int]] = {"executor": EXECUTORS, "compactor": 2, "reconciler": 2}
_MANY: Final = 16
_AWAY: Final = (KafkaException, psycopg.Error)
IN_FLIGHT: Final = 200

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    Attributes:
        seconds: Of faults and drain together.
        groups: Of faults (``schedule.GROUPS``).
        in_flight: Runs that are kept in flight until the faults end.
    """

    seed: int
    seconds: float
    groups: Collection[str] = ALL_GROUPS
    in_flight: int = IN_FLIGHT

    @property
    def faults_s(self) -> float:
        """How long there are faults."""
        return max(_SHORTEST_S, self.seconds - DRAIN_S)


def run(stack: Stack, folder: Path, plan: Plan, say: Say) -> Report:
    """Run the chaos on the servers of a stack; says what happens as it goes."""
    script = Script(plan.seed)
    chance = Random(plan.seed + 1)  # noqa: S311 - latencies, no secrets
    with World(script, lambda: chance.uniform(*_LATENCY_S), KEYLESS) as world:
        installation = set_up(stack, folder, world)
        try:
            with Services(installation.environment, folder / "logs") as services:
                report = _Chaos(stack, installation, services, world, script, plan, say).run()
        except BaseException:
            with contextlib.suppress(*_AWAY):  # what happened before is the news
                installation.remove()
            raise
        try:
            installation.remove()
        except _AWAY as error:
            report.problems.append(f"the installation could not be removed: {error}")
        return report


class _Chaos:
    def __init__(
        self,
        stack: Stack,
        installation: Installation,
        services: Services,
        world: World,
        script: Script,
        plan: Plan,
        say: Say,
    ) -> None:
        self._installation = installation
        self._services = services
        self._world = world
        self._plan = plan
        self._say = say
        self._fleet = Fleet(services)
        self._injector = Injector(self._fleet, stack, installation.environment["RUNFOLD_POSTGRES_DSN"])
        self._people = People(installation, world, script, Pace(in_flight=plan.in_flight))
        self._began = time.monotonic()
        self._said_at = 0.0
        self._problems: list[str] = []

    def run(self) -> Report:
        for role, count in _FLEET.items():
            for _ in range(count):
                self._fleet.start(role)
        self._services.await_ready(*self._services.running())
        self._began = time.monotonic()
        with self._people:
            self._faults()
            ended_at = time.monotonic()
            self._people.enough()
            self._drain()
            drain_s = time.monotonic() - ended_at
            self._settle()
        return self._judge(drain_s)

    def _faults(self) -> None:
        """Perform the schedule, each fault in a thread: some take longer than the next one waits."""
        coming = list(schedule(self._plan.seed, self._plan.faults_s, self._plan.groups))
        at_work: list[Future[None]] = []
        with ThreadPoolExecutor(_MANY, "fault") as pool:
            while coming or self._elapsed < self._plan.faults_s:
                if coming and coming[0].at_s <= self._elapsed:
                    at_work.append(pool.submit(self._injector.perform, coming.pop(0)))
                self._tick()
            while not all(fault.done() for fault in at_work):
                self._tick()
        self._problems += [f"a fault could not be done: {error}" for one in at_work if (error := one.exception())]
        self._fill()

    def _fill(self) -> None:
        """Bring everybody back whom the last faults left away."""
        for role, count in _FLEET.items():
            while self._fleet.count(role) < count:
                self._fleet.start(role)

    def _drain(self) -> None:
        """Wait until the people have heard of every run's end; what is missing then is a run that is stuck."""
        deadline = time.monotonic() + _DRAIN_AT_MOST_S
        while self._people.told.in_flight and time.monotonic() < deadline:
            self._tick()

    def _settle(self) -> None:
        """Stop when all is said; what has not come to that in time the checkers will tell.

        Every input leaves a record (a late duplicate comes after the runs' end). The executors end first: whoever
        takes over from one that stops writes a claim. Then Postgres has to have the whole log.
        """
        self._await(is_settled)
        try:
            self._fleet.stop_all("executor")
            self._await(is_applied)
            self._fleet.stop_all("compactor", "reconciler")
        except DemoError as error:
            self._problems.append(f"every_service_ends_cleanly: {error}")
        self._problems += [f"no_service_ends_by_itself: {ended}" for ended in self._fleet.exits]

    def _await(self, is_so: Callable[[Installation], bool]) -> None:
        deadline = time.monotonic() + _SETTLED_S
        while time.monotonic() < deadline and not is_so(self._installation):
            self._tick()

    def _judge(self, drain_s: float) -> Report:
        told = self._people.told
        aftermath = Aftermath.read(self._installation, self._world, told.started)
        judged = judge(aftermath, self._fleet.sleeps)
        times = take_overs(aftermath.log.claims, self._fleet.kills, self._injector.outages)
        faults = self._injector.done
        rows = figures(aftermath, judged, faults, told.answers, times, drain_s)
        problems = [*self._problems, *judged.problems]
        return Report(self._plan.seed, problems, faults, aftermath.log.runs_of_several_epochs, rows)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _tick(self) -> None:
        threading.Event().wait(_TICK_S)
        self._people.check()
        self._fleet.revive()
        if self._elapsed - self._said_at < _SAY_EVERY_S:
            return
        self._said_at = self._elapsed
        told, done = self._people.told, self._injector.done
        groups = Counter({group: sum(done[kind] for kind in set(GROUPS[group])) for group in self._plan.groups})
        faults = ", ".join(f"{group} {count}" for group, count in groups.items()) or "none"
        begun, over = len(told.started), len(told.ended)
        self._say(
            f"{self._elapsed:5.0f} s  runs {begun} started, {over} ended, {told.in_flight} in flight;"
            f" executors {self._fleet.count('executor')}; faults {faults}"
        )
