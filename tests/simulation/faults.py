"""What goes wrong: slow and failing clients of the stores, and faults that hit at any moment until it gets calm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from runfold import App
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.core.payload import BlobRef
from runfold.ports.blobs import BlobsUnavailable
from runfold.ports.publisher import Published, PublishFailed
from runfold.ports.store import Commit, DueCall, PartitionRow, StoredRun
from runfold.testing.simulation.cluster import MemberNode
from tests.runtime.faults import FaultyLog
from tests.runtime.system import Process, System


@dataclass(slots=True)
class Weather:
    """How bad it is at the moment.

    Attributes:
        chance: For whatever the clients below decide.
        is_bad: False: the clients work as they should, and people do nothing silly.
        trouble: How likely the author's code and the model misbehave, [0, 1].
        store_delay, close_delay: Most seconds that a call to Postgres, and closing a reader, take.
        publish_failures: Share of the publications that fail; half of those have been made.
        blobs_away: The object store cannot be reached.
    """

    chance: Random
    trouble: float = 0.0
    store_delay: float = 0.0
    close_delay: float = 0.0
    publish_failures: float = 0.0
    is_bad: bool = True
    blobs_away: bool = False

    async def lag(self, most: float) -> None:
        """Take up to ``most`` seconds."""
        if self.is_bad and most:
            await asyncio.sleep(self.chance.random() * most)


class SlowStore(MemoryStore):
    """Postgres that takes its time before a transaction, and before its answer arrives."""

    def __init__(self, database: MemoryDatabase, weather: Weather) -> None:
        super().__init__(database)
        self._weather = weather

    async def _lag(self) -> None:
        await self._weather.lag(self._weather.store_delay)

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().load_partition(partition, also)
        await self._lag()
        return answer

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().load_runs(run_ids)
        await self._lag()
        return answer

    async def covered(self, seqs: Mapping[str, int]) -> set[str]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().covered(seqs)
        await self._lag()
        return answer

    async def commit(self, commit: Commit) -> PartitionRow:
        """Write late, answer late."""
        await self._lag()
        row = await super().commit(commit)
        await self._lag()
        return row

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """Lease late."""
        await self._lag()
        return await super().lease_due(holder, limit, grace_s, lease_s)


class FlakyPublisher(MemoryPublisher):
    """Publications that fail, having been made or not."""

    def __init__(self, broker: MemoryBroker, weather: Weather) -> None:
        super().__init__(broker)
        self._weather = weather

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Append one record; or fail, before it or behind it."""
        fails = self._weather.is_bad and self._weather.chance.random() < self._weather.publish_failures
        if fails and self._weather.chance.random() < 0.5:
            raise PublishFailed("lost on the way")
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if fails:
            raise PublishFailed("the acknowledgement was lost")
        return published


class SlowInputs(MemoryInputs):
    """Inputs whose readers take their time to close."""

    def __init__(self, broker: MemoryBroker, weather: Weather) -> None:
        super().__init__(broker)
        self._weather = weather

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Read each topic from its next offset on."""
        await asyncio.sleep(0)
        starts = {topic: next_offsets.get(topic, 0) for topic in self._broker.topics.inputs}
        return _SlowReader(self._broker, partition, starts, self._weather)


class _SlowReader(MemoryInputReader):
    def __init__(self, broker: MemoryBroker, partition: int, starts: Mapping[str, int], weather: Weather) -> None:
        super().__init__(broker, partition, starts)
        self._weather = weather

    async def close(self) -> None:
        await self._weather.lag(self._weather.close_delay)


class FlakyBlobs(MemoryBlobs):
    """An object store that is away at times."""

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self._weather = weather

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes, unless the store is away."""
        self._reach()
        return await super().put(data)

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back, unless the store is away."""
        self._reach()
        return await super().get(ref)

    def _reach(self) -> None:
        if self._weather.blobs_away:
            raise BlobsUnavailable("the object store is away")


@dataclass(frozen=True, slots=True)
class Victim:
    """An executor's process, and its log client."""

    process: Process
    log: FaultyLog


@dataclass
class Faults:
    """Starts the processes of a system, and hits them with the chosen faults.

    Attributes:
        chosen: Names of the faults that may hit, of ``ALL_FAULTS``.
        live: Executors that run and were not asked to stop.
        stopping: The hand-overs of those that were.
    """

    system: System
    app: App
    weather: Weather
    chance: Random
    chosen: tuple[str, ...]
    live: list[Victim] = field(default_factory=list)
    logs: list[FaultyLog] = field(default_factory=list)
    compactors: list[MemberNode] = field(default_factory=list)
    stopping: list[asyncio.Task[None]] = field(default_factory=list)

    async def start_executor(self) -> None:
        """Start one more executor."""
        log = FaultyLog(self.system.broker)
        self.logs.append(log)
        process = await self.system.start_executor(self.app, f"p{len(self.logs)}", log)
        self.live.append(Victim(process, log))

    def start_compactor(self) -> None:
        """Start one more compactor."""
        self.compactors.append(self.system.start_compactor())

    async def strike(self) -> None:
        """Hit 2 to 15 times, with pauses of milliseconds to seconds."""
        for _ in range(self.chance.randint(2, 15) if self.chosen else 0):
            await asyncio.sleep(self.chance.random() * self.chance.choice([0.05, 1, 8]))
            if not self.live:
                await self.start_executor()
            fault = self.chance.choice(self.chosen)
            if fault in _ON_EXECUTORS:
                await _ON_EXECUTORS[fault](self, self.chance.choice(self.live))
            elif fault in _ON_STORES:
                _ON_STORES[fault](self)

    async def calm(self) -> None:
        """End every fault; at least one executor lives."""
        self.weather.is_bad = self.weather.blobs_away = False
        self.weather.trouble = 0.0
        self.system.database.available = True
        for log in self.logs:
            log.ack_delay = 0.0
            log.fates.clear()
            log.release()
        if not self.live:
            await self.start_executor()

    def later(self, most_s: float, action: Callable[[], None]) -> None:
        """Do something within ``most_s`` seconds."""
        asyncio.get_running_loop().call_later(self.chance.random() * most_s, action)

    def release_later(self, victim: Victim) -> None:
        """End a pause within a second, within the fencing time, or long after; the session may end before."""
        if self.chance.random() < 0.5:
            victim.process.membership.expire()
        self.later(self.chance.choice([1, 8, 25]), victim.log.release)


async def _kill(faults: Faults, victim: Victim) -> None:
    victim.process.kill()
    faults.live.remove(victim)
    if faults.chance.random() < 0.8:
        await faults.start_executor()


async def _stop(faults: Faults, victim: Victim) -> None:
    faults.live.remove(victim)
    victim.log.ack_delay = 0.0
    victim.log.release()
    faults.stopping.append(asyncio.create_task(victim.process.stop(), name="stop"))
    await faults.start_executor()


async def _expire(_: Faults, victim: Victim) -> None:
    victim.process.membership.expire()


async def _pause(faults: Faults, victim: Victim) -> None:
    """As by SIGSTOP: it hears of nothing, wakes up after its session or before, goes on unaware, and exits."""

    def wake() -> None:
        victim.log.release()
        faults.later(3, victim.process.kill)

    faults.live.remove(victim)
    victim.process.membership.kill()
    if faults.chance.random() < 0.7:
        victim.log.hold_acks = True
    else:
        victim.log.hold_landing = True
    faults.later(faults.chance.choice([8, 25]), wake)
    await faults.start_executor()


async def _choose_fates(faults: Faults, victim: Victim) -> None:
    victim.log.fates.extend(faults.chance.choices(["ok", "lost", "unknown"], [4, 1, 1], k=faults.chance.randint(1, 6)))


async def _hold_acks(faults: Faults, victim: Victim) -> None:
    victim.log.hold_acks = True
    faults.release_later(victim)


async def _hold_landing(faults: Faults, victim: Victim) -> None:
    victim.log.hold_landing = True
    faults.release_later(victim)


async def _delay_acks(faults: Faults, victim: Victim) -> None:
    victim.log.ack_delay = faults.chance.choice([0.0, 0.05, 1.0, 6.0])


def _lose_database(faults: Faults) -> None:
    faults.system.database.available = False
    faults.later(20, lambda: setattr(faults.system.database, "available", True))


def _lose_blobs(faults: Faults) -> None:
    faults.weather.blobs_away = True
    faults.later(20, lambda: setattr(faults.weather, "blobs_away", False))


def _disturb_compactors(faults: Faults) -> None:
    if faults.chance.random() < 0.5:
        faults.compactors.pop().membership.expire()
    faults.start_compactor()


_ON_EXECUTORS = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "expire": _expire,
    "fates": _choose_fates,
    "hold-acks": _hold_acks,
    "hold-landing": _hold_landing,
    "delay-acks": _delay_acks,
}
_ON_STORES = {"database": _lose_database, "blobs": _lose_blobs, "compactors": _disturb_compactors}
# These hold all the time, until it gets calm: ``weather_of`` sets them.
_ALWAYS = ("slow-store", "publish", "slow-close")
ALL_FAULTS = (*_ON_EXECUTORS, *_ON_STORES, *_ALWAYS)


def weather_of(chosen: Collection[str], chance: Random, trouble: float) -> Weather:
    """The weather of a run with these faults."""
    return Weather(
        chance,
        trouble,
        store_delay=chance.choice([0.01, 0.3, 3.0]) if "slow-store" in chosen else 0.0,
        close_delay=3.0 if "slow-close" in chosen else 0.0,
        publish_failures=0.3 if "publish" in chosen else 0.0,
    )
