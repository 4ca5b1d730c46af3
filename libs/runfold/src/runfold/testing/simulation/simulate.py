"""One run of the whole system from a seed: an app and a scenario under faults, then calm, then what the checkers say.

Everything random comes from the seed, and time is virtual: the same seed gives the same records at the same times::

    async def scenario(people: People) -> None:
        await people.start("r1", "assistant", "go")
        await people.attend()

    outcome = simulate(app, scenario, seed=7)
    assert outcome.problems() == []

Whatever the scenario starts by ``people.start`` has to end once it is calm; ``people.attend`` does what people do about
waiting runs, for ever, and is cancelled when all have ended. The app's tools write what they do into ``book``; without
one only the checkers of inputs, tables and progress have something to look at.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from runfold import App
from runfold.adapters.memory.broker import MemoryBroker
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.checkers import check
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.ending import Ending
from runfold.testing.simulation.faults import ALL_FAULTS, STEPS, Faults
from runfold.testing.simulation.history import History
from runfold.testing.simulation.loop import run_virtual
from runfold.testing.simulation.network import FlakyPublisher, NetworkLog, SlowInputs
from runfold.testing.simulation.people import People
from runfold.testing.simulation.scheduler import Scheduler, Steps
from runfold.testing.simulation.stores import FlakyBlobs, FlakyEffects, FlakyStore
from runfold.testing.simulation.threads import virtual_threads
from runfold.testing.simulation.trace import Trace, quiet
from runfold.testing.simulation.weather import Weather, stream, weather_of

FADING_S = 30.0
"""From the last fault until the calm: outages last no longer."""
CALM_S = 1500.0
"""How long every run may take to end once it is calm."""
REST_S = 100.0
"""From there until the tables must have followed."""
QUIET_S = 15.0
"""And so long nothing may come any more."""
COMPACTOR_POLL_S = 2.0
"""Rarer than in service: most of a simulated time is idle. A record wakes the compactor anyway."""
LIMIT_S = 36_000.0

Scenario = Callable[[People], Coroutine[Any, Any, None]]
Apps = App | Callable[[str], App]
"""An app, or what makes it for a revision."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a seed chooses before anything begins.

    Attributes:
        faults: Which faults there are, of ``ALL_FAULTS``.
        trouble, snapshot_every, partitions: See ``Weather`` and ``Cluster``.
        executors, compactors, reconcilers: How many there are at the beginning.
        most_faults: Most faults that hit at a moment of the clock.
        steps: See ``Steps``.
        inline_limit: Bytes of the largest payload that does not go to the object store.
    """

    faults: tuple[str, ...]
    trouble: float
    executors: int
    compactors: int
    reconcilers: int
    snapshot_every: int
    most_faults: int
    steps: Steps
    partitions: int = 2
    inline_limit: int = 65_536

    @classmethod
    def of(cls, seed: int, faults: Collection[str] | None = None) -> Self:
        """The conditions of a seed, with the faults that are given instead of its own."""
        chance = stream(seed, "conditions")
        drawn = set(chance.sample(ALL_FAULTS, chance.randint(1, 8)))
        # Deaths and pauses at any await, under whatever else goes wrong, are what this is for.
        drawn |= {fault for fault in STEPS if chance.random() < 0.4}  # noqa: PLR2004 - often
        own = tuple(sorted(drawn))
        chosen = own if faults is None else tuple(faults)
        return cls(
            faults=chosen,
            trouble=chance.choice([0.0, 0.1, 0.3]) if chosen else 0.0,
            executors=chance.randint(1, 3),
            compactors=chance.randint(1, 2),
            reconcilers=chance.randint(1, 2),
            snapshot_every=chance.choice([1, 3, 50]),
            most_faults=chance.choice([4, 15]),
            steps=Steps.drawn(
                chance, hiccups="hiccups" in chosen, kills="step-kill" in chosen, pauses="step-pause" in chosen
            ),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed went.

    Attributes:
        ending: For the checkers.
        digest: Of every record of every topic, its time included, of what the world saw, and of how many steps each
            process made: two runs that were the same have the same.
        seconds: How much virtual time it took.
        injected: What was done to the system, name -> count.
        trace: What happened, if it was asked for.
    """

    conditions: Conditions
    ending: Ending
    digest: str
    seconds: float
    injected: dict[str, int]
    trace: Trace | None = None

    def problems(self) -> list[str]:
        """What the checkers say."""
        return check(self.ending)


def simulate(
    app: Apps,
    scenario: Scenario,
    *,
    seed: int,
    faults: Collection[str] | None = None,
    book: Book | None = None,
    conditions: Conditions | None = None,
    traced: bool = False,
) -> Outcome:
    """Run an app and a scenario once.

    Args:
        app: See ``Apps``. Its tools are called in virtual time: they must not wait for anything real.
        scenario: What people do; cancelled when everything that it started has ended.
        seed: Decides everything.
        faults: Instead of the seed's own.
        book: What the app's tools write into.
        conditions: Instead of the seed's own, and of ``faults``.
        traced: Whether to write a trace.
    """
    chosen = Conditions.of(seed, faults) if conditions is None else conditions
    weather = weather_of(chosen.faults, stream(seed, "clients"), chosen.trouble)
    made = app if callable(app) else lambda _: app
    return Simulation(made, scenario, seed, chosen, weather, book or Book(), Trace() if traced else None).run()


@dataclass
class Simulation:
    """One run, while it runs. ``app`` makes the app of a revision."""

    app: Callable[[str], App]
    scenario: Scenario
    seed: int
    conditions: Conditions
    weather: Weather
    book: Book
    trace: Trace | None = None
    unhandled: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        """Run it on a loop of its own."""
        trace = self.trace
        if trace is not None:
            self.book.tell = trace.say
        with (
            quiet() if trace is None else trace.listening(),
            virtual_threads(stream(self.seed, "threads"), self.book),
            _no_garbage_collected(),
        ):
            return run_virtual(self._run(), LIMIT_S)

    async def _run(self) -> Outcome:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.unhandled.append(f"{context['message']}: {context.get('exception')!r}")
        )
        seed, chosen, weather, trace = self.seed, self.conditions, self.weather, self.trace
        cluster = Cluster(
            partitions=chosen.partitions,
            snapshot_every=chosen.snapshot_every,
            inline_limit=chosen.inline_limit,
            compactor_poll_s=COMPACTOR_POLL_S,
            blobs=FlakyBlobs(weather),
            store=lambda database: FlakyStore(database, weather, trace),
            publisher=lambda broker: FlakyPublisher(broker, weather, trace),
            inputs=lambda broker: SlowInputs(broker, weather),
            log=lambda broker: NetworkLog(broker, weather, scheduler.landed, trace, scheduler.appended),
            clock=weather.clock,
            effects=lambda database: FlakyEffects(database, weather),
            on_node=lambda node: scheduler.watch(node),  # noqa: PLW0108 - made below
            seed=seed * 1000,
        )
        history = History(cluster.broker)
        self.book.log_end, self.book.committed = history.log_end, cluster.effects_database.committed
        scheduler = Scheduler(seed, chosen.steps, weather, self.book, trace)
        faults = Faults(cluster, self.app, weather, stream(seed, "faults"), chosen.faults, scheduler)
        scheduler.replace = faults.replace
        people = People(cluster, history, self.book, weather, stream(seed, "people"))
        try:
            await self._begin(faults)
            await self._go_through(faults, people)
            return await self._outcome(faults, people)
        finally:
            if self.trace is not None:
                self.trace.is_over = True
            try:
                await cluster.close()
            finally:
                # Behind the burial: who waits for a dead process cannot be cancelled.
                await _end(*faults.stopping.values())

    async def _begin(self, faults: Faults) -> None:
        for _ in range(self.conditions.compactors):
            faults.cluster.start_compactor()
        for _ in range(self.conditions.reconcilers):
            faults.start_reconciler()
        for _ in range(self.conditions.executors):
            await faults.start_executor()

    async def _go_through(self, faults: Faults, people: People) -> None:
        """Faults on, faults off, and whatever was started comes to its end."""
        playing = asyncio.get_running_loop().create_task(self.scenario(people), name="people")
        try:
            await faults.strike(self.conditions.most_faults)
            await asyncio.sleep(FADING_S)
            await faults.calm()
            if self.trace is not None:
                self.trace.say("--- calm", "world")

            def is_over() -> bool:
                if playing.done():
                    playing.result()
                return people.all_ended

            await faults.cluster.until(is_over, CALM_S)
        except TimeoutError:
            pass  # ``every_run_ends`` says which
        finally:
            await _end(playing)
        await self._rest(faults)

    async def _rest(self, faults: Faults) -> None:
        """Until the tables have followed, and a little longer; at most ``REST_S``."""
        cluster = faults.cluster
        try:
            await cluster.until(lambda: _is_applied(cluster) and _is_forgotten(faults), REST_S)
        except TimeoutError:
            return  # checkers say what is missing
        await asyncio.sleep(QUIET_S)

    async def _outcome(self, faults: Faults, people: People) -> Outcome:
        cluster = faults.cluster
        ending = await Ending.of(
            cluster,
            people.history,
            self.book,
            started=people.started,
            executors=faults.executors,
            unstopped=faults.unstopped(),
            unhandled=self.unhandled,
        )
        self.weather.is_over = True
        return Outcome(
            conditions=self.conditions,
            ending=ending,
            digest=_digest_of(cluster, self.book),
            seconds=asyncio.get_running_loop().time(),
            injected=dict(sorted(self.weather.injected.items())),
            trace=self.trace,
        )


def _is_applied(cluster: Cluster) -> bool:
    """Whether the tables have followed the log."""
    rows, broker = cluster.database.partitions, cluster.broker
    return all(
        (row := rows.get(partition)) is not None and row.applied == broker.bounds(TOPICS.log, partition)[1]
        for partition in range(broker.partitions)
    )


def _is_forgotten(faults: Faults) -> bool:
    """Whether no executor holds a run any more, and none is on its way out."""
    return not faults.unstopped() and not any(node.executor.runs_in_memory for node in faults.executors)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still runs; an error of a task that ended by itself is raised."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Collect before and behind, never within: what is collected runs code (``finally``), whenever it pleases."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _digest_of(cluster: Cluster, book: Book) -> str:
    """Give the sha256 of everything that was done, in hex."""
    digest = hashlib.sha256()
    broker: MemoryBroker = cluster.broker
    for topic in broker.topics.all:
        for partition in range(broker.partitions):
            for stored in broker.slice(topic, partition, *broker.bounds(topic, partition)):
                digest.update(repr((topic, partition, stored)).encode())
    for seen in (book.calls, book.effects, book.questions):
        digest.update(repr(seen).encode())
    steps = [(node.process.name, node.process.steps, node.process.condition.name) for node in cluster.nodes]
    digest.update(repr(steps).encode())
    return digest.hexdigest()


__all__ = ["ALL_FAULTS", "Book", "Conditions", "Outcome", "People", "Scenario", "simulate"]
