"""Faults that hit at moments of the clock until it gets calm; those of single steps are the scheduler's."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from runfold import App
from runfold.testing.simulation.cluster import Cluster, ExecutorNode, MemberNode, Node
from runfold.testing.simulation.loop import Condition
from runfold.testing.simulation.network import NetworkLog
from runfold.testing.simulation.scheduler import Scheduler
from runfold.testing.simulation.weather import CONSTANT, Weather

_WORLD = contextvars.Context()


@dataclass
class Faults:
    """Starts the processes of a cluster, keeps some of each kind alive, and hits them with the chosen faults.

    Attributes:
        app: The app of the executors and reconcilers, by its revision.
        chosen: Names of the faults that may hit, of ``ALL_FAULTS``.
        revision: What new processes run: ``upgrade`` changes it.
        stopping: The hand-overs of executors that were asked to stop.
    """

    cluster: Cluster
    app: Callable[[str], App]
    weather: Weather
    chance: Random
    chosen: tuple[str, ...]
    scheduler: Scheduler
    revision: str = "rev-1"
    stopping: dict[ExecutorNode, asyncio.Task[None]] = field(default_factory=dict)
    _starting: dict[asyncio.Task[object], None] = field(default_factory=dict)

    # --- processes ----------------------------------------------------------------------------------------------

    @property
    def executors(self) -> list[ExecutorNode]:
        """Executors that live (or sleep), and were not asked to stop."""
        return [node for node in self._living() if isinstance(node, ExecutorNode)]

    @property
    def compactors(self) -> list[MemberNode]:
        """Compactors that live."""
        return [node for node in self._living() if isinstance(node, MemberNode) and not isinstance(node, ExecutorNode)]

    @property
    def reconcilers(self) -> list[Node]:
        """Reconcilers that live."""
        return [node for node in self._living() if not isinstance(node, MemberNode)]

    def _living(self) -> list[Node]:
        return [
            node
            for node in self.cluster.nodes
            if node.process.condition is not Condition.DEAD and node not in self.stopping
        ]

    async def start_executor(self) -> ExecutorNode:
        """Start one more executor."""
        return await self.cluster.start_executor(self.app(self.revision), revision=self.revision)

    def start_reconciler(self) -> Node:
        """Start one more reconciler."""
        return self.cluster.start_reconciler(self.app(self.revision), self.revision)

    def start_like(self, node: Node) -> None:
        """Start another process of the same kind, now."""
        if isinstance(node, ExecutorNode):
            task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self.start_executor(), name="start")
            self._starting[task] = None
            task.add_done_callback(self._started)
        elif isinstance(node, MemberNode):
            self.cluster.start_compactor()
        else:
            self.start_reconciler()

    def _started(self, task: asyncio.Task[object]) -> None:
        del self._starting[task]
        task.result()

    def replace(self, node: Node) -> None:
        """Start another one soon, or late, as whoever runs the services does."""
        self.later(self.chance.choice([0.0, 1.0, 10.0]), lambda: self.start_like(node))

    # --- faults -------------------------------------------------------------------------------------------------

    async def strike(self, most: int) -> None:
        """Hit 2 to ``most`` times, with pauses of milliseconds to seconds."""
        now = [fault for fault in self.chosen if fault in _ON_EXECUTORS or fault in _ON_ALL]
        for _ in range(self.chance.randint(2, most) if now else 0):
            await asyncio.sleep(self.chance.random() * self.chance.choice([0.05, 1, 8]))
            if not self.executors:
                await self.start_executor()
            fault = self.chance.choice(now)
            self.weather.injected[fault] += 1
            if self.scheduler.trace is not None:
                self.scheduler.trace.say(f"*** fault {fault}", "world")
            if fault in _ON_EXECUTORS:
                _ON_EXECUTORS[fault](self, self.chance.choice(self.executors))
            else:
                _ON_ALL[fault](self)

    async def calm(self) -> None:
        """End every fault; at least one process of each kind lives."""
        self.scheduler.calm()
        self.weather.calm()
        self.cluster.database.available = self.cluster.effects_database.available = True
        for node in self.cluster.nodes:
            if isinstance(node, ExecutorNode) and isinstance(node.log, NetworkLog):
                node.log.calm()
        if self._starting:
            await asyncio.wait(list(self._starting))
        if not self.executors:
            await self.start_executor()
        if not self.compactors:
            self.cluster.start_compactor()
        if not self.reconcilers:
            self.start_reconciler()

    def later(self, most_s: float, action: Callable[[], object]) -> None:
        """Do something within ``most_s`` seconds, if it has not become calm: then the calm has seen to it."""
        seconds = self.chance.random() * most_s
        asyncio.get_running_loop().call_later(seconds, self._unless_calm, action, context=_WORLD)

    def _unless_calm(self, action: Callable[[], object]) -> None:
        if self.weather.is_bad:
            action()

    def release_later(self, log: NetworkLog, node: ExecutorNode) -> None:
        """End a blockade within a second, within the fencing time, or long after; the session may end before."""
        if self.chance.random() < 0.5:  # noqa: PLR2004 - either
            node.membership.expire()
        self.later(self.chance.choice([1, 8, 25]), log.release)

    def stop(self, node: ExecutorNode) -> None:
        """SIGTERM."""
        if isinstance(node.log, NetworkLog):
            node.log.calm()
        self.stopping[node] = asyncio.get_running_loop().create_task(node.stop(), name=f"stop {node.process.name}")

    def unstopped(self) -> list[str]:
        """Executors that were asked to stop, were not killed since, and have not ended."""
        dead = Condition.DEAD
        return [
            node.process.name
            for node, task in self.stopping.items()
            if not task.done() and node.process.condition is not dead
        ]


def _kill(faults: Faults, node: ExecutorNode) -> None:
    faults.scheduler.kill(node)


def _stop(faults: Faults, node: ExecutorNode) -> None:
    faults.stop(node)
    faults.start_like(node)


def _upgrade(faults: Faults, node: ExecutorNode) -> None:
    """New code: what starts from now on runs it, beside the old."""
    number = int(faults.revision.removeprefix("rev-")) + 1
    faults.revision = f"rev-{number}"
    _stop(faults, node)


def _expire(_: Faults, node: ExecutorNode) -> None:
    node.membership.expire()


def _pause(faults: Faults, node: ExecutorNode) -> None:
    faults.scheduler.pause(node, faults.chance.choice([3, 8, 25]) * faults.chance.random())


def _scale(faults: Faults, _: ExecutorNode) -> None:
    """One more joins: a rebalance."""
    if len(faults.executors) < _MANY:
        faults.start_like(faults.executors[0])


def _choose_fates(faults: Faults, node: ExecutorNode) -> None:
    if isinstance(node.log, NetworkLog):
        count = faults.chance.randint(1, 6)
        node.log.fates.extend(faults.chance.choices(["ok", "lost", "unknown", "broken"], [4, 1, 1, 1], k=count))


def _hold_acks(faults: Faults, node: ExecutorNode) -> None:
    if isinstance(node.log, NetworkLog):
        node.log.hold_acks = True
        faults.release_later(node.log, node)


def _hold_landing(faults: Faults, node: ExecutorNode) -> None:
    if isinstance(node.log, NetworkLog):
        node.log.hold_landing = True
        faults.release_later(node.log, node)


def _delay_acks(faults: Faults, node: ExecutorNode) -> None:
    if isinstance(node.log, NetworkLog):
        node.log.ack_delay = faults.chance.choice([0.0, 0.05, 1.0, 6.0])


def _lose_database(faults: Faults) -> None:
    databases = faults.cluster.database, faults.cluster.effects_database
    for database in databases:
        database.available = False

    def restart() -> None:
        for database in databases:
            database.available = True

    faults.later(20, restart)


def _lose_blobs(faults: Faults) -> None:
    faults.weather.blobs_away = True
    faults.later(20, lambda: setattr(faults.weather, "blobs_away", False))


def _lose_kafka(faults: Faults) -> None:
    faults.weather.kafka_away = True
    faults.later(15, lambda: setattr(faults.weather, "kafka_away", False))


def _disturb_compactors(faults: Faults) -> None:
    if faults.chance.random() < 0.5 and faults.compactors:  # noqa: PLR2004 - either
        faults.chance.choice(faults.compactors).membership.expire()
    if len(faults.compactors) < _MANY:
        faults.cluster.start_compactor()


def _disturb_reconcilers(faults: Faults) -> None:
    if faults.chance.random() < 0.5 and faults.reconcilers:  # noqa: PLR2004 - either
        faults.scheduler.kill(faults.chance.choice(faults.reconcilers))
    if len(faults.reconcilers) < _MANY:
        faults.start_reconciler()


_MANY = 4
_ON_EXECUTORS: dict[str, Callable[[Faults, ExecutorNode], None]] = {
    "kill": _kill,
    "stop": _stop,
    "upgrade": _upgrade,
    "pause": _pause,
    "expire": _expire,
    "scale": _scale,
    "fates": _choose_fates,
    "hold-acks": _hold_acks,
    "hold-landing": _hold_landing,
    "delay-acks": _delay_acks,
}
_ON_ALL: dict[str, Callable[[Faults], None]] = {
    "database": _lose_database,
    "blobs": _lose_blobs,
    "kafka": _lose_kafka,
    "compactors": _disturb_compactors,
    "reconcilers": _disturb_reconcilers,
}
STEPS = {
    "hiccups": "processes are interrupted for moments, and overtake one another",
    "step-kill": "processes are killed at any await",
    "step-pause": "processes are paused at any await",
}
"""Faults of single steps: the scheduler's."""
ALL_FAULTS = (*_ON_EXECUTORS, *_ON_ALL, *CONSTANT, *STEPS)
