"""One run of the whole system from a seed: random work under faults, then calm, then the ending for the checkers.

Everything random comes from the seed, and time is virtual: the same seed gives the same records at the same times.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import structlog

from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.store import MemoryStore
from tests.runtime.system import TOPICS, System
from tests.runtime.virtual import run_virtual
from tests.simulation.checkers import Ending, check
from tests.simulation.faults import ALL_FAULTS, Faults, FlakyBlobs, FlakyPublisher, SlowInputs, SlowStore, weather_of
from tests.simulation.history import History
from tests.simulation.people import People
from tests.simulation.world import NO_SUCH_TOOL, TOOL_OPTIONS, World

PARTITIONS = 2
FADING_S = 30.0
"""From the last fault until the calm: pauses and outages last no longer."""
CALM_S = 1500.0
"""How long every run may take to end once it is calm."""
REST_S = 100.0
"""From there until the tables must have followed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed chooses before anything begins.

    Attributes:
        timeout: Seconds of every tool: shorter than the session of the group, or longer.
        trouble, is_big, snapshot_every: See ``Weather``, ``World`` and ``System``.
    """

    faults: tuple[str, ...]
    runs: int
    tools: tuple[str, ...]
    timeout: float
    trouble: float
    is_big: bool
    executors: int
    snapshot_every: int

    @classmethod
    def of(cls, seed: int, faults: Collection[str] | None = None) -> Plan:
        """The plan of a seed, with the faults that are given instead of its own."""
        chance = stream(seed, "plan")
        own = tuple(sorted(chance.sample(ALL_FAULTS, chance.randint(1, 6))))
        names = [*TOOL_OPTIONS, NO_SUCH_TOOL]
        return cls(
            faults=own if faults is None else tuple(sorted(faults)),
            runs=chance.randint(1, 5),
            tools=tuple(chance.sample(names, chance.randint(1, 5))),
            timeout=chance.choice([5.0, 20.0]),
            trouble=chance.choice([0.05, 0.25, 0.5]),
            is_big=chance.random() < 0.3,
            executors=chance.randint(1, 2),
            snapshot_every=chance.choice([1, 3, 50]),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed went.

    Attributes:
        ending: For the checkers.
        digest: Of every record of every topic, its time included: two runs that were the same have the same.
    """

    plan: Plan
    ending: Ending
    digest: str

    def problems(self) -> list[str]:
        """What the checkers say."""
        return check(self.ending)


def stream(seed: int, role: str) -> Random:
    """The random numbers of one role: what one part draws does not shift what another gets."""
    return Random(f"{seed} {role}")  # noqa: S311 - reproducible on purpose, nothing secret


def run_seed(seed: int, faults: Collection[str] | None = None) -> Outcome:
    """Run one seed, with its own faults or the given ones."""
    with _quiet():
        return run_virtual(_run(seed, Plan.of(seed, faults)), 36_000)


async def _run(seed: int, plan: Plan) -> Outcome:
    unhandled: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: unhandled.append(f"{context['message']}: {context.get('exception')!r}")
    )
    weather = weather_of(plan.faults, stream(seed, "clients"), plan.trouble)
    running = System.running(
        partitions=PARTITIONS,
        compacting=False,
        snapshot_every=plan.snapshot_every,
        inline_limit=1000 if plan.is_big else 65_536,
        blobs=FlakyBlobs(weather),
        store=lambda database: SlowStore(database, weather),
        publisher=lambda broker: FlakyPublisher(broker, weather),
        inputs=lambda broker: SlowInputs(broker, weather),
    )
    async with running as system:
        world = World(History(system.broker), weather, stream(seed, "world"), plan.timeout, plan.is_big)
        faults = Faults(system, world.app(), weather, stream(seed, "faults"), plan.faults)
        people = People(system, world, stream(seed, "people"), list(plan.tools))
        faults.start_compactor()
        system.start_reconciler(faults.app)
        for _ in range(plan.executors):
            await faults.start_executor()
        attending = asyncio.create_task(people.attend(), name="people")
        try:
            await asyncio.gather(people.start_runs(plan.runs), faults.strike())
            await asyncio.sleep(FADING_S)
            await faults.calm()
            await _until_all_ended(system, world.history, people.runs, attending)
        finally:
            await _end(attending)
        await asyncio.sleep(REST_S)
        ending = await _ending(system, world, faults, people.runs, unhandled)
        await _end(*faults.stopping)
        return Outcome(plan, ending, digest_of(system.broker))


async def _until_all_ended(system: System, history: History, runs: list[str], attending: asyncio.Task[None]) -> None:
    def all_ended() -> bool:
        if attending.done():
            attending.result()
        return all((state := history.state(run_id)) is not None and state.ended is not None for run_id in runs)

    try:
        await system.until(all_ended, CALM_S)
    except TimeoutError:
        return  # ``every_run_ends`` says which


async def _ending(system: System, world: World, faults: Faults, started: list[str], unhandled: list[str]) -> Ending:
    broker, history = system.broker, world.history
    seen = [act.run_id for act in world.downstream.calls] + [asked.run_id for asked in world.downstream.questions]
    return Ending(
        partitions=history.partitions(),
        log_ends=[broker.bounds(TOPICS.log, partition)[1] for partition in range(PARTITIONS)],
        inputs=[
            (topic, partition, offset)
            for topic in TOPICS.inputs
            for partition in range(PARTITIONS)
            for offset in range(broker.bounds(topic, partition)[1])
        ],
        started=started,
        home={run_id: history.of(run_id).partition for run_id in [*started, *seen]},
        database=system.database,
        stored=await MemoryStore(system.database).load_runs(list(system.database.runs)),
        downstream=world.downstream,
        in_memory={victim.process.task.get_name(): victim.process.executor.runs_in_memory for victim in faults.live},
        unstopped=[task.get_name() for task in faults.stopping if not task.done()],
        unhandled=unhandled,
    )


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still runs; an error of a task that ended by itself is raised."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
            raise result


def digest_of(broker: MemoryBroker) -> str:
    """Give the sha256 of all records of all topics, in hex."""
    digest = hashlib.sha256()
    for topic in broker.topics.all:
        for partition in range(broker.partitions):
            for stored in broker.slice(topic, partition, *broker.bounds(topic, partition)):
                digest.update(repr((topic, partition, stored)).encode())
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: the faults would fill pages, and rendering them takes longer than the run."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        structlog.configure(**before)
