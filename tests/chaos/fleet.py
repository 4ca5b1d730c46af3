"""The processes under chaos: who runs, who sleeps, and that what ends is started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Final, Literal

from demo.errors import DemoError
from demo.processes import Command, Service, Services
from tests.crowd.checkers import Sleep

Role = Literal["executor", "compactor", "reconciler"]
COMMANDS: Final[dict[Role, Command]] = {
    "executor": "runfold-step-executor",
    "compactor": "runfold-snapshot-compactor",
    "reconciler": "runfold-reconciler",
}
_SAID: Final = 400
_REST_S: Final = 10.0
"""A process that was paused is not paused again for so long: what it woke up to must be over before."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process was killed at ``at_ms``."""

    role: Role
    pid: int
    at_ms: int


@dataclass(slots=True)
class Member:
    """One process of the fleet. ``busy``: a fault is at work on it, no other may choose it."""

    role: Role
    service: Service
    busy: bool = False
    rested_at: float = 0.0


@dataclass(slots=True)
class Fleet:
    """Starts, ends and pauses services; its methods may be called from several threads.

    Attributes:
        kills, sleeps: What was done, for the checkers and the figures.
        exits: Services that ended by themselves, each with its exit code and the last line of its log.
    """

    services: Services
    kills: list[Kill] = field(default_factory=list)
    sleeps: list[Sleep] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    _members: list[Member] = field(default_factory=list)
    _count: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self, role: Role) -> Service:
        """Start one more of a kind; returns at once."""
        with self._lock:
            self._count += 1
            service = self.services.start(COMMANDS[role], f"{role}-{self._count}")
            self._members.append(Member(role, service))
            return service

    def count(self, role: Role) -> int:
        """How many of a kind run, sleepers included."""
        with self._lock:
            return sum(member.role == role for member in self._members)

    def take(self, role: Role, victim: float, *, rested: bool = False) -> Member | None:
        """Choose one that nothing else is being done to, and keep it from others; None if there is none.

        Args:
            role: Its kind.
            victim: Chooses: a fraction of their number.
            rested: Only one that has not been paused lately.
        """
        now = time.monotonic()
        with self._lock:
            free = [one for one in self._members if one.role == role and not one.busy]
            if rested:
                free = [one for one in free if one.rested_at <= now]
            if not free:
                return None
            member = free[int(victim * len(free))]
            member.busy = True
            return member

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        at_ms = _now_ms()
        self.services.kill(member.service)
        with self._lock:
            self.kills.append(Kill(member.role, member.service.pid, at_ms))
            self._members.remove(member)

    def stop(self, member: Member) -> None:
        """SIGTERM, and wait for the clean end; one that has not said a word yet is killed by it, like any program.

        Raises:
            DemoError: It does not end, or not with code 0.
        """
        with self._lock:
            self._members.remove(member)
        try:
            self.services.stop(member.service)
        except DemoError:
            is_unbegun = member.service.log.stat().st_size == 0
            if not (is_unbegun and member.service.child.returncode == -signal.SIGTERM):
                raise

    def pause(self, member: Member, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so many seconds later."""
        stopped_ms = _now_ms()
        os.kill(member.service.pid, signal.SIGSTOP)
        try:
            threading.Event().wait(seconds)
        finally:
            os.kill(member.service.pid, signal.SIGCONT)
            with self._lock:
                self.sleeps.append(Sleep(member.service.pid, stopped_ms, _now_ms()))
                member.busy, member.rested_at = False, time.monotonic() + _REST_S

    def revive(self) -> None:
        """Take note of what ended by itself, and start it again, as an operator's supervisor does."""
        with self._lock:
            for member in list(self._members):
                code = member.service.child.poll()
                if code is None or not member.service.is_expected_to_run:
                    continue
                member.service.is_expected_to_run = False
                last = member.service.tail().splitlines()[-1]
                self.exits.append(f"{member.service.name} ended with code {code}; the end of its log: {last[:_SAID]}")
                self._members.remove(member)
                self.start(member.role)

    def stop_all(self, *roles: Role) -> None:
        """SIGTERM to all of some kinds, and wait.

        Raises:
            DemoError: One does not end cleanly.
        """
        with self._lock:
            members = [member for member in self._members if member.role in roles]
        failures: list[DemoError] = []
        threads = [threading.Thread(target=self._stop_one, args=(member, failures)) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _stop_one(self, member: Member, failures: list[DemoError]) -> None:
        try:
            self.stop(member)
        except DemoError as error:
            failures.append(error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
