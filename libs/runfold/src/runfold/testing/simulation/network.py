"""The clients of Kafka, as the real ones fail: in the client's queue, on the way, at the broker, on the way back."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.adapters.memory.log import MemoryFollower, MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.ports.inputs import InputRecord
from runfold.ports.log import AppendFailed, LogBounds, LogRecord, LogUnavailable, OnAck
from runfold.ports.publisher import Published, PublishFailed
from runfold.testing.simulation.loop import Process
from runfold.testing.simulation.trace import Trace
from runfold.testing.simulation.weather import Weather

_WORLD = contextvars.Context()
_BUSY_S = 0.25
_TIMEOUT_S = 2.0
_LATE_S = (0.1, 2.0, 15.0)

Landed = Callable[["Process | None", int, Stored], None]


def _nobody(_: Process | None) -> None:
    """Nobody is told."""


@dataclass(eq=False)
class _Append:
    """One record between its client and the broker, and the way back to whom it concerns."""

    partition: int
    record: Stored
    on_ack: OnAck
    process: contextvars.Context
    fate: str = "ok"
    answered: bool = False
    outcome: int | AppendFailed | None = None


@dataclass(eq=False)
class _Connection:
    """Records on the way to the broker, in their order; those of a broken one may still arrive."""

    queue: deque[_Append] = field(default_factory=deque)
    due: float = 0.0


class NetworkLog(MemoryLog):
    """The log of one process.

    An append waits in the client's queue, which stands still with its process; then it is on the way, whatever becomes
    of the process; it lands, and the acknowledgement goes back, which a process that is paused hears of when it
    wakes up. Order is kept as an idempotent producer keeps it: what follows a record that has not landed does not land
    before it; what follows one that *failed* may. When a connection breaks, everything on it fails, what was on the
    way may still land, and what comes next uses a new one.

    Attributes:
        hold_landing: Nothing lands: the way to the broker is blocked.
        hold_acks: Nothing is heard: the way back is.
        ack_delay: Seconds that every acknowledgement takes on top.
        fates: For coming appends, in order: ``ok``, ``lost`` (never lands, fails), ``unknown`` (lands, fails),
            ``broken`` (the connection breaks here).
    """

    def __init__(
        self,
        broker: MemoryBroker,
        weather: Weather,
        landed: Landed,
        trace: Trace | None = None,
        appended: Callable[[Process | None], None] = _nobody,
    ) -> None:
        super().__init__(broker)
        self._appended = appended
        self.hold_landing = self.hold_acks = False
        self.ack_delay = 0.0
        self.fates: deque[str] = deque()
        self._weather = weather
        self._landed = landed
        self._trace = trace
        self._owner: Process | None = None
        self._connection = _Connection()
        self._old: list[_Connection] = []
        self._acks: deque[_Append] = deque()
        self._acks_due = 0.0

    def calm(self) -> None:
        """Let everything through, in order."""
        self.ack_delay = 0.0
        self.fates.clear()
        self.release()

    def release(self) -> None:
        """End the blockades."""
        self.hold_landing = self.hold_acks = False
        loop = asyncio.get_running_loop()
        for connection in (*self._old, self._connection):
            for _ in connection.queue:
                loop.call_soon(self._arrive, connection, context=_WORLD)
        for _ in self._acks:
            loop.call_soon(self._return, context=_WORLD)

    def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
        """Append one record without waiting; whoever strikes processes is told."""
        super().append(partition, key, head, value, on_ack)
        self._appended(Process.current())

    # --- the way there ------------------------------------------------------------------------------------------

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        """The client sends: this still runs in its process."""
        self._owner = Process.current()
        append = _Append(partition, record, on_ack, contextvars.copy_context())
        append.fate = self.fates.popleft() if self.fates else "ok"
        self._acks.append(append)
        if append.fate == "lost":
            self._answer(append, AppendFailed("lost on the way"))
            return
        self._send(self._connection, append)
        if append.fate == "unknown":
            self._answer(append, AppendFailed("the acknowledgement was lost"))
        elif append.fate == "broken":
            self._break()

    def _send(self, connection: _Connection, append: _Append) -> None:
        connection.queue.append(append)
        loop = asyncio.get_running_loop()
        connection.due = max(connection.due, loop.time() + self._delay())
        loop.call_at(connection.due, self._arrive, connection, context=_WORLD)

    def _delay(self) -> float:
        weather = self._weather
        return weather.chance.random() * weather.network_delay if weather.is_bad and weather.network_delay else 0.0

    def _break(self) -> None:
        """Everything on the way has failed for the client; some of it lands all the same, in its order, later."""
        old, self._connection = self._connection, _Connection()
        chance = self._weather.chance
        landing = chance.randint(0, len(old.queue))
        while len(old.queue) > landing:
            self._answer(old.queue.pop(), AppendFailed("the connection broke"))
        for append in old.queue:
            self._answer(append, AppendFailed("the connection broke, and it was on the way"))
        self._old.append(old)
        late = chance.random() * chance.choice(_LATE_S)
        loop = asyncio.get_running_loop()
        for _ in old.queue:
            loop.call_later(late, self._arrive, old, context=_WORLD)
        old.due = loop.time() + late

    def _arrive(self, connection: _Connection) -> None:
        """The next record of a connection reaches the broker, if its time has come."""
        loop = asyncio.get_running_loop()
        if not connection.queue or self.hold_landing:
            return  # ``release`` looks again
        if self._weather.kafka_away:
            loop.call_later(_BUSY_S, self._arrive, connection, context=_WORLD)
            return
        if connection in self._old and loop.time() < connection.due:
            return
        append = connection.queue.popleft()
        if not self._broker.exists(self._topic, append.partition):
            self._answer(append, AppendFailed(f"{self._topic} has no partition {append.partition}"))
            return
        record = append.record
        offset = self._broker.append(self._topic, append.partition, record.key, record.value, record.headers)
        if self._trace is not None:
            self._trace.landed(append.partition, offset, record, self._name)
        self._landed(self._owner, append.partition, record)
        self._answer(append, offset)

    @property
    def _name(self) -> str:
        return "world" if self._owner is None else self._owner.name

    # --- the way back -------------------------------------------------------------------------------------------

    def _answer(self, append: _Append, outcome: int | AppendFailed) -> None:
        """An append's outcome is on its way back; the first one counts."""
        if append.answered:
            return
        append.answered, append.outcome = True, outcome
        loop = asyncio.get_running_loop()
        self._acks_due = max(self._acks_due, loop.time() + self.ack_delay + self._delay())
        loop.call_at(self._acks_due, self._return, context=_WORLD)

    def _return(self) -> None:
        """Whatever has an outcome and is first in line reaches its process."""
        loop = asyncio.get_running_loop()
        while self._acks and self._acks[0].answered and not self.hold_acks:
            append = self._acks.popleft()
            loop.call_soon(self._hear, append, context=append.process)

    def _hear(self, append: _Append) -> None:
        assert append.outcome is not None  # noqa: S101 - answered before it returns
        if self._trace is not None and isinstance(append.outcome, AppendFailed):
            self._trace.say(f"append to log[{append.partition}] failed: {append.outcome}")
        append.on_ack(append.outcome)

    # --- reading ------------------------------------------------------------------------------------------------

    async def bounds(self, partition: int) -> LogBounds:
        """Give what exists now, unless Kafka is away."""
        await self._reach()
        return await super().bounds(partition)

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read, unless Kafka is away; at times fewer than there are."""
        await self._reach()
        chance = self._weather.chance
        if self._weather.is_bad and max_records > 1 and chance.random() < 0.2:  # noqa: PLR2004 - now and then
            max_records = chance.randint(1, min(max_records, 5))
        return await super().read(partition, start, end, max_records)

    async def follow(self, partition: int, start: int) -> MemoryFollower:
        """Read from ``start`` on."""
        await self._reach()
        return _Follower(self._broker, partition, start, self._weather)

    async def _reach(self) -> None:
        await _reach(self._weather)


async def _reach(weather: Weather) -> None:
    if weather.kafka_away:
        await asyncio.sleep(_TIMEOUT_S)
        if weather.kafka_away:
            raise LogUnavailable("Kafka is away")
    elif weather.network_delay:
        await weather.lag(weather.network_delay)


class _Follower(MemoryFollower):
    def __init__(self, broker: MemoryBroker, partition: int, start: int, weather: Weather) -> None:
        super().__init__(broker, partition, start)
        self._weather = weather

    async def next(self, max_records: int, timeout: float) -> list[LogRecord]:  # noqa: ASYNC109 - the port's contract
        """Wait for records; none come while Kafka is away."""
        if self._weather.kafka_away:
            await asyncio.sleep(timeout)
            return []
        return await super().next(max_records, timeout)


class FlakyPublisher(MemoryPublisher):
    """Publications that fail, having been made or not, or to be made later."""

    def __init__(self, broker: MemoryBroker, weather: Weather, trace: Trace | None = None) -> None:
        super().__init__(broker)
        self._weather = weather
        self._trace = trace

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Append one record; or fail, before it, behind it, or while it is on its way."""
        weather = self._weather
        if weather.kafka_away:
            await asyncio.sleep(_TIMEOUT_S)
            if weather.kafka_away:
                raise PublishFailed("Kafka is away")
        await weather.lag(weather.network_delay)
        fate = weather.chance.choice(["lost", "late", "unknown"]) if self._fails() else "ok"
        if fate == "lost":
            raise PublishFailed("lost on the way")
        if fate == "late":
            late = weather.chance.random() * weather.chance.choice(_LATE_S)
            chosen = self._choose(key) if partition is None else partition
            loop = asyncio.get_running_loop()
            loop.call_later(late, self._broker.append, topic, chosen, key, value, headers, context=_WORLD)
            raise PublishFailed("the connection broke, and it was on the way")
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        if self._trace is not None:
            self._trace.say(f"published {topic}[{published.partition}]@{published.offset} {(key or b'').decode()}")
        await weather.lag(weather.network_delay)
        if fate == "unknown":
            raise PublishFailed("the acknowledgement was lost")
        return published

    def _fails(self) -> bool:
        return self._weather.strikes(self._weather.publish_failures, "publish")


class SlowInputs(MemoryInputs):
    """Inputs that arrive late, each topic in its own time, at readers that take their time to close."""

    def __init__(self, broker: MemoryBroker, weather: Weather) -> None:
        super().__init__(broker)
        self._weather = weather

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Read each topic from its next offset on."""
        await _reach(self._weather)
        await asyncio.sleep(0)
        starts = {topic: next_offsets.get(topic, 0) for topic in self._broker.topics.inputs}
        return _SlowReader(self._broker, partition, starts, self._weather)

    async def fetch(self, topic: str, partition: int, offset: int) -> InputRecord | None:
        """Read one record, unless Kafka is away."""
        await _reach(self._weather)
        return await super().fetch(topic, partition, offset)


class _SlowReader(MemoryInputReader):
    def __init__(self, broker: MemoryBroker, partition: int, starts: Mapping[str, int], weather: Weather) -> None:
        super().__init__(broker, partition, starts)
        self._weather = weather
        self._blind: dict[str, float] = {}

    async def next(self, max_records: int) -> list[InputRecord]:
        """Wait for records of the topics that this reader sees at the moment."""
        while True:
            wait = self._look_away()
            if wait is None:
                return await super().next(max_records)
            await asyncio.sleep(0)
            if records := self._take(max_records):
                return records
            await asyncio.sleep(wait)

    def _look_away(self) -> float | None:
        """Choose topics whose fetches take their time; gives when to look again, None: nothing is hidden."""
        weather, now = self._weather, asyncio.get_running_loop().time()
        if weather.kafka_away:
            self._blind = dict.fromkeys(self._next, now + _BUSY_S)
        elif not weather.is_bad or not weather.input_delay:
            self._blind.clear()
        elif weather.chance.random() < 0.3:  # noqa: PLR2004 - now and then
            topic = weather.chance.choice(self._broker.topics.inputs)
            self._blind[topic] = now + weather.chance.random() * weather.input_delay
        self._blind = {topic: until for topic, until in self._blind.items() if until > now}
        return min(min(self._blind.values()) - now + 0.001, _BUSY_S) if self._blind else None

    def _take(self, max_records: int) -> list[InputRecord]:
        hidden = {topic: self._next.pop(topic) for topic in self._blind if topic in self._next}
        try:
            return super()._take(max_records)
        finally:
            self._next.update(hidden)

    async def close(self) -> None:
        """Take some time."""
        await self._weather.lag(self._weather.close_delay)
