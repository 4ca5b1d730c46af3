"""The whole runtime in one process on in-memory stores: several executors, a compactor, a reconciler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from runfold import App
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.membership import MemoryMembership
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.core.events import InputSettled, RunEvent
from runfold.core.fence import Fence, Head, Judgement
from runfold.core.partitioning import partition_of
from runfold.core.state import State
from runfold.core.transitions import fold
from runfold.ports.agents import Agents
from runfold.ports.topics import Topics
from runfold.runtime.compactor import Compactor, CompactorSettings
from runfold.runtime.executor import Executor, ExecutorSettings
from runfold.runtime.reconciler.reconciler import Reconciler
from runfold.runtime.reconciler.settings import ReconcilerSettings

TOPICS = Topics()


@dataclass
class Process:
    """One executor, as a process that can be stopped or killed."""

    executor: Executor
    membership: MemoryMembership
    log: MemoryLog
    task: asyncio.Task[None]
    agents: Agents

    async def stop(self) -> None:
        """SIGTERM: hand over, leave, end."""
        await self.membership.leave()
        await self.task

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more; the group notices after the session."""
        self.membership.kill()
        self.task.cancel()


@dataclass
class System:
    """In-memory Kafka, Postgres and object store, and the processes on them.

    ``store``, ``publisher`` and ``inputs`` make the processes' clients where the plain in-memory ones are not wanted.
    """

    partitions: int = 2
    session_s: float = 10.0
    broker: MemoryBroker = field(init=False)
    database: MemoryDatabase = field(init=False)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    processes: list[Process] = field(default_factory=list)
    snapshot_every: int = 50
    compacting: bool = True
    inline_limit: int = 65_536
    store: Callable[[MemoryDatabase], MemoryStore] | None = None
    publisher: Callable[[MemoryBroker], MemoryPublisher] | None = None
    inputs: Callable[[MemoryBroker], MemoryInputs] | None = None
    _others: list[asyncio.Task[None]] = field(default_factory=list)
    _seed: int = 0

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.partitions)
        self.database = MemoryDatabase(LoopClock())

    @classmethod
    @asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator[Self]:
        """A system with a compactor; everything ends with the block."""
        system = cls(**settings)
        if system.compacting:
            system.start_compactor()
        try:
            yield system
        finally:
            for process in system.processes:
                process.task.cancel()
            tasks = [process.task for process in system.processes] + system._others
            for task in tasks:
                task.cancel()
            ended, deaf = await asyncio.wait(tasks, timeout=100.0) if tasks else (set(), set())
            errors = [task.exception() for task in ended if not task.cancelled()]
            assert not any(errors), errors
            assert not deaf, f"cancelled, and go on: {sorted(task.get_name() for task in deaf)}"

    async def start_executor(
        self, app: App, name: str = "executor", log: MemoryLog | None = None, revision: str = "rev-1"
    ) -> Process:
        """Start a process and join the group."""
        self._seed += 1
        seed = self._seed
        log = log or MemoryLog(self.broker)
        membership = MemoryMembership(self.broker, "executors", TOPICS.requests, self.session_s)
        started: asyncio.Future[tuple[Executor, Agents]] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with app.running("executor", revision=revision) as agents:
                executor = Executor(
                    log=log,
                    inputs=(self.inputs or MemoryInputs)(self.broker),
                    publisher=(self.publisher or MemoryPublisher)(self.broker),
                    store=(self.store or MemoryStore)(self.database),
                    blobs=self.blobs,
                    agents=agents,
                    clock=LoopClock(),
                    chance=SeededChance(seed),
                    settings=ExecutorSettings(
                        owner=f"{name}-{seed}", partitions=self.partitions, inline_limit=self.inline_limit
                    ),
                )
                started.set_result((executor, agents))
                await executor.run(membership)

        task = asyncio.create_task(run(), name=f"process {name}-{seed}")
        executor, agents = await started
        process = Process(executor, membership, log, task, agents)
        self.processes.append(process)
        return process

    def start_compactor(self) -> MemoryMembership:
        """Start a compactor; gives its membership."""
        self._seed += 1
        compactor = Compactor(
            log=MemoryLog(self.broker),
            store=(self.store or MemoryStore)(self.database),
            publisher=(self.publisher or MemoryPublisher)(self.broker),
            inputs=(self.inputs or MemoryInputs)(self.broker),
            blobs=self.blobs,
            clock=LoopClock(),
            chance=SeededChance(self._seed),
            settings=CompactorSettings(
                dead_topic=TOPICS.dead,
                notifications_topic=TOPICS.notifications,
                snapshot_every=self.snapshot_every,
            ),
        )
        membership = MemoryMembership(self.broker, "compactors", TOPICS.log)
        self._others.append(asyncio.create_task(membership.run(compactor), name="compactor"))
        return membership

    def start_reconciler(self, app: App) -> None:
        """Start a reconciler."""

        async def run() -> None:
            async with app.running("reconciler", revision="rev-1") as agents:
                reconciler = Reconciler(
                    (self.store or MemoryStore)(self.database),
                    (self.publisher or MemoryPublisher)(self.broker),
                    self.blobs,
                    agents,
                    LoopClock(),
                    ReconcilerSettings(holder="reconciler-1"),
                )
                await reconciler.run()

        self._others.append(asyncio.create_task(run(), name="reconciler"))

    # --- the outside --------------------------------------------------------------------------------------------

    async def send(self, topic: str, run_id: str, value: bytes, partition: int | None = None) -> int:
        """Produce an input; gives its offset."""
        published = await MemoryPublisher(self.broker).publish(topic, run_id.encode(), value, partition=partition)
        return published.offset

    async def start(self, run_id: str, agent: str, input_json: Any = "go", **fields: Any) -> int:
        """Produce ``run_started``."""
        return await self.send(TOPICS.requests, run_id, codec_inputs.encode_start(run_id, agent, input_json, **fields))

    async def approve(self, run_id: str, step: int, decision: str = "approved", by: str = "dana") -> int:
        """Produce an approval."""
        value = codec_inputs.encode_approval(run_id, f"{run_id}:{step}", decision, by)
        return await self.send(TOPICS.approvals, run_id, value)

    async def request(self, run_id: str, value: bytes) -> int:
        """Produce another input to ``requests``."""
        return await self.send(TOPICS.requests, run_id, value)

    # --- what is true -------------------------------------------------------------------------------------------

    def records(self, run_id: str) -> tuple[list[RunEvent], list[InputSettled]]:
        """The valid events of a run, and the valid settled inputs of its partition."""
        partition = partition_of(run_id, self.partitions)
        fence = Fence()
        events: list[RunEvent] = []
        settled: list[InputSettled] = []
        _, end = self.broker.bounds(TOPICS.log, partition)
        for stored in self.broker.slice(TOPICS.log, partition, 0, end):
            head = Head.decode(dict(stored.headers)["rf"])
            body = log_codec.decode(stored.value or b"")
            cause = body.cause if isinstance(body, RunEvent | InputSettled) else None
            key = None if stored.key is None else stored.key.decode()
            if fence.admit(head, stored.offset, key, cause) is Judgement.VALID:
                if isinstance(body, InputSettled):
                    settled.append(body)
                elif isinstance(body, RunEvent) and key == run_id:
                    events.append(body)
        return events, settled

    def events(self, run_id: str) -> list[RunEvent]:
        """The valid events of a run."""
        return self.records(run_id)[0]

    def types(self, run_id: str) -> list[str]:
        """Names of a run's valid events."""
        return [type(event).__name__ for event in self.events(run_id)]

    def state(self, run_id: str) -> State | None:
        """The run, folded from the log."""
        state: State | None = None
        for event in self.events(run_id):
            state = fold(state, event)  # type: ignore[arg-type]
        return state

    async def until(self, condition: Callable[[], object], timeout_s: float = 600.0) -> None:
        """Wait for a state (in virtual time)."""
        pause = 0.0
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(pause)
                pause = min(0.2, pause + 0.0005)

    async def ended(self, run_id: str) -> State:
        """Wait for a run's end; gives its last state."""
        await self.until(lambda: (state := self.state(run_id)) is not None and state.ended is not None)
        state = self.state(run_id)
        assert state is not None
        return state

    async def waiting(self, run_id: str, reason: str) -> State:
        """Wait until a run waits for ``reason``; gives its state."""

        def waits() -> bool:
            state = self.state(run_id)
            return state is not None and any(wait.reason == reason for wait in state.waits.values())

        await self.until(waits)
        state = self.state(run_id)
        assert state is not None
        return state


@dataclass
class Book:
    """What a downstream system knows: effects by key."""

    effects: Counter[str] = field(default_factory=Counter)
    results: dict[str, Any] = field(default_factory=dict)

    def apply(self, key: str, value: Any) -> Any:
        """Perform an effect; a key seen before changes nothing (KEYED downstreams)."""
        self.effects[key] += 1
        return self.results.setdefault(key, value)
