"""Who runs when, and which process dies or sleeps at which await: seeded, step by step.

A step is what a process runs between two awaits (``loop.Process``). Before each the scheduler may do three things:

* a *hiccup*: the process stands still for up to some milliseconds, and others overtake it. What the operating system
  does to processes all the time, and what makes interleavings differ;
* a *strike*: the process is killed, or paused as by SIGSTOP;
* nothing, nearly always.

When a strike hits is chosen in two ways: uniformly, by the number of steps until the next one (a draw from an
exponential distribution, so that every step is as likely as any other); and right behind a record that matters, since
that is where a system like this one breaks: some steps after a request, an outcome or a claim has landed, which covers
the moments before and behind the acknowledgement, the effect and the next append; or while a record still waits in the
client's queue, which is how a zombie comes to write.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from runfold.adapters.memory.broker import Stored
from runfold.core.fence import HEADER, Head, Kind
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.cluster import Node
from runfold.testing.simulation.loop import Condition, Process
from runfold.testing.simulation.trace import Trace
from runfold.testing.simulation.weather import Weather, stream

_WORLD = contextvars.Context()
_NEVER = 1 << 60
_MARGIN_S = 0.2

# Seconds: shorter than freshness (5), between it and the session (10), past the session, past time-out and grace.
PAUSES_S = ((0.05, 4.9), (5.0, 9.9), (10.1, 20.0), (20.0, 90.0))


@dataclass(frozen=True, slots=True)
class Steps:
    """What the scheduler may do.

    Attributes:
        hiccups: Mean number of steps between two hiccups of one process; 0: none.
        hiccup_s: Most seconds that one takes.
        kills, pauses: Whether strikes kill, and whether they pause.
        mean: Mean number of steps of one process between two uniform strikes.
        bias: Share of the log's records behind which their writer is struck.
        limit: Most strikes altogether.
        dropped: Numbers of strikes that are left out: the shrinker looks which of them it takes.
    """

    hiccups: int = 0
    hiccup_s: float = 0.01
    kills: bool = False
    pauses: bool = False
    mean: int = 0
    bias: float = 0.0
    limit: int = 0
    dropped: frozenset[int] = frozenset()

    @classmethod
    def drawn(cls, chance: Random, *, hiccups: bool, kills: bool, pauses: bool) -> Steps:
        """Choose how often, and how long."""
        return cls(
            hiccups=chance.choice([3, 20, 100]) if hiccups else 0,
            hiccup_s=chance.choice([0.0, 0.002, 0.05, 0.5]),
            kills=kills,
            pauses=pauses,
            mean=chance.choice([0, 100, 500, 2000]),
            bias=chance.choice([0.02, 0.1, 0.3]),
            limit=chance.choice([1, 3, 8, 15]) if kills or pauses else 0,
        )


@dataclass(slots=True)
class _Watched:
    """How many steps a process has until each thing happens to it."""

    node: Node
    hiccup: int = _NEVER
    strike: int = _NEVER


def _nobody(_: Node) -> None:
    """Nobody starts another."""


@dataclass
class Scheduler:
    """Watches every process of a cluster.

    Attributes:
        replace: Called when a node has been killed: somebody starts another.
        enabled: False: it has become calm.
    """

    seed: int
    steps: Steps
    weather: Weather
    book: Book
    trace: Trace | None = None
    enabled: bool = True
    struck: int = 0
    replace: Callable[[Node], None] = _nobody
    _watched: dict[Process, _Watched] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = stream(self.seed, "scheduler")

    def watch(self, node: Node) -> None:
        """Look after a new process."""
        watched = self._watched[node.process] = _Watched(node)
        watched.hiccup = self._draw(self.steps.hiccups)
        watched.strike = self._draw(self.steps.mean if self.steps.limit else 0)
        if self.steps.hiccups or self.steps.limit:
            node.process.on_step = self._step

    def calm(self) -> None:
        """Do nothing any more, and wake up whoever sleeps."""
        self.enabled = False
        for process, watched in self._watched.items():
            process.on_step = None
            watched.node.resume()

    def landed(self, writer: Process | None, _partition: int, record: Stored) -> None:
        """A record is in the log: its writer may be struck soon."""
        if writer is None or not self.steps.bias or self.struck >= self.steps.limit or not self.enabled:
            return
        watched = self._watched.get(writer)
        if watched is None or self._chance.random() >= self.steps.bias:
            return
        if Head.decode(dict(record.headers)[HEADER]).kind is not Kind.SETTLED or self._chance.random() < _SELDOM:
            watched.strike = min(watched.strike, self._chance.randint(1, 12))

    def appended(self, writer: Process | None) -> None:
        """A record is in its client's queue: its writer may be struck before it is sent, and wake up as a zombie."""
        watched = None if writer is None or not self.enabled else self._watched.get(writer)
        if watched is None or not self.steps.bias or self.struck >= self.steps.limit:
            return
        if self._chance.random() < self.steps.bias / 2:
            watched.strike = 1

    def _draw(self, mean: int) -> int:
        return 1 + int(self._chance.expovariate(1 / mean)) if mean else _NEVER

    def _step(self, process: Process) -> None:
        watched = self._watched[process]
        watched.hiccup -= 1
        watched.strike -= 1
        if watched.strike <= 0:
            watched.strike = self._draw(self.steps.mean)
            self._strike(watched)
        elif watched.hiccup <= 0:
            watched.hiccup = self._draw(self.steps.hiccups)
            self._hiccup(watched)

    def _hiccup(self, watched: _Watched) -> None:
        process = watched.node.process
        seconds = self._chance.random() * self.steps.hiccup_s
        by = self.book.wake_by(process)
        if by is not None and asyncio.get_running_loop().time() + seconds > by - _MARGIN_S:
            return
        self.weather.injected["hiccup"] += 1
        process.pause()
        loop = asyncio.get_running_loop()
        pause = process.pauses
        loop.call_later(seconds, lambda: process.resume() if process.pauses == pause else None, context=_WORLD)

    def _strike(self, watched: _Watched) -> None:
        if self.struck >= self.steps.limit or not self.enabled:
            return
        self.struck += 1
        # Each has numbers of its own: leaving one out leaves the others what they are.
        chance = stream(self.seed, f"strike {self.struck}")
        kills = self.steps.kills and (not self.steps.pauses or chance.random() < 0.5)  # noqa: PLR2004 - either
        if self.struck in self.steps.dropped:
            return
        if kills:
            self.kill(watched.node)
        else:
            self.pause(watched.node, chance.uniform(*chance.choice(PAUSES_S)))

    def kill(self, node: Node) -> None:
        """SIGKILL."""
        if node.process.condition is Condition.DEAD:
            return
        self._say(node, f"SIGKILL at step {node.process.steps}")
        self.weather.injected["kill"] += 1
        node.kill()
        self.replace(node)

    def pause(self, node: Node, seconds: float) -> None:
        """SIGSTOP, and SIGCONT behind ``seconds``, or earlier where nobody could be safe from it (``Book.exposed``)."""
        if node.process.condition is not Condition.RUNNING:
            return
        loop = asyncio.get_running_loop()
        by = self.book.wake_by(node.process)
        if by is not None:
            seconds = min(seconds, by - _MARGIN_S - loop.time())
            if seconds <= 0:
                return
        self._say(node, f"SIGSTOP at step {node.process.steps} for {seconds:.3f} s")
        self.weather.injected["pause"] += 1
        node.pause()
        pause = node.process.pauses

        def wake() -> None:
            if node.process.condition is Condition.PAUSED and node.process.pauses == pause:
                self._say(node, "SIGCONT")
                node.resume()

        loop.call_later(seconds, wake, context=_WORLD)

    def _say(self, node: Node, what: str) -> None:
        if self.trace is not None:
            self.trace.say(f"*** {what}", node.process.name)


_SELDOM = 0.2
