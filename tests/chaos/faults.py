"""The faults themselves, on real processes and real servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import psycopg

from devstack import Stack, StackError
from tests.chaos.fleet import Fleet, Role
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devstack.server import Server

STORM: Final = (1, 4, 2)
EXECUTORS: Final = STORM[-1]
_STORM_PAUSE_S: Final = 2.0
_STARTS: Final = 3
_TERMINATE: Final = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Outage:
    """A server did not answer from ``from_ms`` to ``to_ms`` (milliseconds since 1970)."""

    server: str
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class Injector:
    """Performs faults; each call blocks until the fault is over, so that each has a thread of its own.

    Attributes:
        done: Kind -> how often it was performed; ``skipped``: how often there was nothing to hit.
    """

    fleet: Fleet
    stack: Stack
    dsn: str
    done: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    outages: list[Outage] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kafka: threading.Lock = field(default_factory=threading.Lock)
    _postgres: threading.Lock = field(default_factory=threading.Lock)
    _storm: threading.Lock = field(default_factory=threading.Lock)

    def perform(self, fault: Fault) -> None:
        """Do it, and repair it."""
        what, _, whom = fault.kind.partition(" ")
        acts: dict[str, Callable[[], bool]] = {
            "kill broker": lambda: self._restart(self.stack.kafka, self._kafka, fault, is_crash=True),
            "restart postgres": lambda: self._restart(self.stack.postgres, self._postgres, fault, is_crash=False),
            "crash postgres": lambda: self._restart(self.stack.postgres, self._postgres, fault, is_crash=True),
            "terminate backends": self._terminate_backends,
            "rebalance storm": self._rebalance_storm,
        }
        roles: dict[str, Callable[[Role, Fault], bool]] = {"kill": self._kill, "pause": self._pause, "stop": self._stop}
        act = acts.get(fault.kind) or (lambda: roles[what](cast("Role", whom), fault))
        is_done = act()
        with self._lock:
            (self.done if is_done else self.skipped)[fault.kind] += 1

    def _kill(self, role: Role, fault: Fault) -> bool:
        member = self.fleet.take(role, fault.victim)
        if member is None:
            return False
        self.fleet.kill(member)
        _wait(fault.absence_s)
        self.fleet.start(role)
        return True

    def _pause(self, role: Role, fault: Fault) -> bool:
        member = self.fleet.take(role, fault.victim, rested=True)
        if member is None:
            return False
        self.fleet.pause(member, fault.pause_s)
        return True

    def _stop(self, role: Role, fault: Fault) -> bool:
        member = self.fleet.take(role, fault.victim)
        if member is None:
            return False
        self.fleet.start(role)
        self.fleet.stop(member)
        return True

    def _restart(self, server: Server, lock: threading.Lock, fault: Fault, *, is_crash: bool) -> bool:
        if not server.controllable:
            return False
        with lock, self._outage(server.name):
            if is_crash:
                server.kill()
            else:
                server.stop()
            _wait(fault.absence_s)
            _bring_back(server)
        return True

    @contextmanager
    def _outage(self, server: str) -> Iterator[None]:
        from_ms = time.time_ns() // 1_000_000
        try:
            yield
        finally:
            self.outages.append(Outage(server, from_ms, time.time_ns() // 1_000_000))

    def _terminate_backends(self) -> bool:
        """Every session of the database but the own one; what is in the middle of a commit included."""
        with self._postgres, psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(_TERMINATE)
        return True

    def _rebalance_storm(self) -> bool:
        """Scale the executors to 1, to 4 and to 2, faster than a hand-over takes."""
        with self._storm:
            for wanted in STORM:
                self._scale(wanted)
                _wait(_STORM_PAUSE_S)
        return True

    def _scale(self, wanted: int) -> None:
        while self.fleet.count("executor") < wanted:
            self.fleet.start("executor")
        while self.fleet.count("executor") > wanted:
            member = self.fleet.take("executor", 0.0)
            if member is None:
                return  # what is left is in the hands of other faults
            self.fleet.stop(member)


def _bring_back(server: Server) -> None:
    """Start it; on a starved machine a start may take longer than it is given, and a supervisor tries again."""
    for left in reversed(range(_STARTS)):
        try:
            return server.start()
        except StackError:
            if left == 0:
                raise
    return None


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
