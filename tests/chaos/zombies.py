"""Four executors fall asleep, each at another point of a call, each with a run of three recovery classes; and wake."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import Producer

from demo.errors import DemoError
from demo.installation import Installation
from demo.processes import Service, Services
from demo.watching import await_state
from demo.world import World
from devstack import Stack
from runfold.core.partitioning import partition_of
from tests.crowd.aftermath import Aftermath, Claim, Log, stop_settled
from tests.crowd.checkers import Sleep
from tests.crowd.installing import set_up
from tests.crowd.names import AGENT, COLLECTIONS, KEYLESS
from tests.crowd.people import Pace, People
from tests.crowd.script import Script

T = TypeVar("T")
POINT_VARIABLE: Final = "ZOMBIE_POINT"
TOOLS: Final = ("publish", "file_ticket", "pay")
"""KEYED, LOOKUP and MANUAL: one run of each falls asleep with every zombie."""


class Point(StrEnum):
    """Where a zombie falls asleep."""

    BEFORE_REQUEST = "before-request"
    BEFORE_EFFECT = "before-effect"
    IN_EFFECT = "in-effect"
    BEFORE_OUTCOME = "before-outcome"


PARTITIONS: Final = len(TOOLS) * (len(Point) + 1)
"""Each executor, the healthy one included, gets as many as there are tools."""
SESSION_S: Final = 6.0
_ASLEEP_S: Final = 60.0
_STABLE_S: Final = 2.0
_SETTLED_S: Final = 60.0


class OneCall(Script):
    """Each run calls the one tool that its id names, and ends."""

    def turns(self, run_id: str) -> list[list[str]]:
        """See ``Script``."""
        return [[run_id.split(".")[1]]]


def point_of(run_id: str) -> Point | None:
    """Give the point at which a run's first executor falls asleep."""
    name = run_id.split(".", maxsplit=1)[0]
    return Point(name) if name in set(Point) else None


def collection_of(tool: str) -> str:
    """Give where a tool posts."""
    return COLLECTIONS[tool]


@dataclass(frozen=True, slots=True)
class Woken:
    """What is left when the zombies have woken, and all has been stopped.

    Attributes:
        runs: (point, tool) -> run.
        zombies: Point -> its pid; ``healthy``: the pid of the executor that never slept.
        sleeps: When who slept.
        ended_s: Seconds from the first sleep until the last run had ended.
        doubts: How often a person was asked what became of a call.
    """

    aftermath: Aftermath
    runs: dict[tuple[Point, str], str]
    zombies: dict[Point, int]
    healthy: int
    sleeps: list[Sleep]
    ended_s: float
    doubts: int

    def writers(self, run_id: str) -> list[int]:
        """Give the process that wrote each of a run's valid events."""
        partition = partition_of(run_id, PARTITIONS)
        pids = {(claim.partition, claim.epoch): claim.pid for claim in self.aftermath.log.claims}
        return [pids[partition, logged.event.epoch] for logged in self.aftermath.log.events[run_id]]


def put_to_sleep_and_wake(stack: Stack, folder: Path, pause_s: float, say: Callable[[str], None]) -> Woken:
    """Tell the whole story.

    Args:
        stack: Kafka and Postgres.
        folder: For logs and payloads.
        pause_s: How long the zombies sleep at least; they sleep on until every run has ended without them.
        say: Told what happens.
    """
    script = OneCall(0)
    with World(script, lambda: 0.05, KEYLESS) as world:
        installation = set_up(stack, folder, world, partitions=PARTITIONS, session_s=SESSION_S)
        try:
            with (
                Services(installation.environment, folder / "logs") as services,
                People(installation, world, script, Pace()) as people,
            ):
                return _Story(installation, services, world, people, say).tell(pause_s)
        finally:
            installation.remove()


class _Story:
    def __init__(
        self,
        installation: Installation,
        services: Services,
        world: World,
        people: People,
        say: Callable[[str], None],
    ) -> None:
        self._installation = installation
        self._services = services
        self._world = world
        self._people = people
        self._say = say
        self._healthy = services.start("runfold-step-executor", "healthy")
        self._zombies = {
            point: services.start(
                "runfold-step-executor", point, {POINT_VARIABLE: point}, module="tests.chaos.zombie_executor"
            )
            for point in Point
        }
        self._others = (
            services.start("runfold-snapshot-compactor", "compactor"),
            services.start("runfold-reconciler", "reconciler"),
        )

    def tell(self, pause_s: float) -> Woken:
        self._services.await_ready(self._healthy, *self._zombies.values(), *self._others)
        self._say("all are ready")
        runs = self._name_runs()
        self._say("each executor has its partitions")
        self._start(runs)
        self._await("all zombies asleep", lambda: all(map(_is_asleep, self._zombies.values())) or None, _ASLEEP_S)
        began, stopped_ms = time.monotonic(), _now_ms()
        self._say(f"{len(self._zombies)} executors are asleep, with {len(runs)} runs")
        # Nothing is left to them but time: whoever ends the runs meanwhile is the healthy one.
        self._await("the end of every run", lambda: (not self._people.told.in_flight) or None, _SETTLED_S)
        ended_s = time.monotonic() - began
        if not all(map(_is_asleep, self._zombies.values())):
            raise DemoError("the zombies should sleep until they are woken")
        self._say(f"{len(runs)} runs have ended after {ended_s:.1f} s, without them")
        threading.Event().wait(max(0.0, pause_s - ended_s))
        for zombie in self._zombies.values():
            os.kill(zombie.pid, signal.SIGCONT)
        continued_ms = _now_ms()
        self._say(f"woken after {time.monotonic() - began:.1f} s")
        self._await_claims_after(continued_ms)
        self._say("all have claimed again")
        stop_settled(self._installation, self._services, [self._healthy, *self._zombies.values()])
        return Woken(
            aftermath=Aftermath.read(self._installation, self._world, list(runs.values())),
            runs=runs,
            zombies={point: zombie.pid for point, zombie in self._zombies.items()},
            healthy=self._healthy.pid,
            sleeps=[Sleep(zombie.pid, stopped_ms, continued_ms) for zombie in self._zombies.values()],
            ended_s=ended_s,
            doubts=self._people.told.doubts,
        )

    def _name_runs(self) -> dict[tuple[Point, str], str]:
        """Give each zombie a run of every tool, in partitions of its own."""
        owned = self._await("a stable assignment", self._assignment, _ASLEEP_S)
        runs = {}
        for point, zombie in self._zombies.items():
            for tool, partition in zip(TOOLS, owned[zombie.pid], strict=True):
                names = (f"{point}.{tool}.{number}" for number in itertools.count())
                runs[point, tool] = next(name for name in names if partition_of(name, PARTITIONS) == partition)
        return runs

    def _assignment(self) -> dict[int, list[int]] | None:
        """Give the partitions of each executor, once each has its share and nothing has moved for a while."""
        owners: dict[int, Claim] = {claim.partition: claim for claim in self._claims()}
        owned: dict[int, list[int]] = {}
        for partition, claim in sorted(owners.items()):
            owned.setdefault(claim.pid, []).append(partition)
        is_old = all(claim.at_ms < _now_ms() - 1000 * _STABLE_S for claim in owners.values())
        shares = sorted(map(len, owned.values()))
        return owned if is_old and shares == [len(TOOLS)] * (len(Point) + 1) else None

    def _claims(self) -> list[Claim]:
        return Log.read(self._installation, PARTITIONS).claims

    def _start(self, runs: dict[tuple[Point, str], str]) -> None:
        """Straight into the runs' partitions: a hand-over in between would be another test."""
        producer = Producer({"bootstrap.servers": self._installation.bootstrap})
        for run_id in runs.values():
            self._people.told.started.append(run_id)
            value = {"type": "run_started", "run_id": run_id, "agent": AGENT, "input": {"task": run_id}}
            topic = f"{self._installation.topics}requests"
            producer.produce(topic, json.dumps(value), run_id, partition=partition_of(run_id, PARTITIONS))
        if producer.flush(_SETTLED_S):
            raise DemoError("the broker should have acknowledged the foreign producer's records")

    def _await_claims_after(self, at_ms: int) -> None:
        """Wait until each zombie has found out, and owns partitions again."""
        pids = {zombie.pid for zombie in self._zombies.values()}

        def all_back() -> bool | None:
            return pids <= {claim.pid for claim in self._claims() if claim.at_ms > at_ms} or None

        self._await("a claim of every zombie that has woken", all_back, _SETTLED_S)

    def _await(self, what: str, ask: Callable[[], T | None], timeout_s: float) -> T:
        self._people.check()
        found: T = await_state(self._services, what, ask, timeout_s)
        return found


def _is_asleep(service: Service) -> bool:
    """Whether the system has stopped the process (proc(5): the state is the first field behind the name)."""
    stat = Path(f"/proc/{service.pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[0] == "T"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
