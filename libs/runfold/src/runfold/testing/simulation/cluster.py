"""The whole runtime on in-memory stores: executors, compactors and reconcilers, each a process of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from runfold import App
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.clock import LoopClock, SeededChance
from runfold.adapters.memory.effects import MemoryEffects, MemoryEffectsDatabase
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
from runfold.ports.clock import Clock
from runfold.ports.effects import EffectsTable
from runfold.ports.topics import Topics
from runfold.runtime.compactor import Compactor, CompactorSettings
from runfold.runtime.executor import Executor, ExecutorSettings
from runfold.runtime.reconciler.reconciler import Reconciler
from runfold.runtime.reconciler.settings import ReconcilerSettings
from runfold.testing.simulation.loop import Condition, Process

TOPICS = Topics()
_END_S = 100.0
NodeT = TypeVar("NodeT", bound="Node")


class DeafTask(Exception):
    """A task that was cancelled and goes on."""


@dataclass(eq=False)
class Node:
    """One service as a process of the simulation: it can be stopped, paused and killed."""

    process: Process
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """SIGTERM."""
        self.task.cancel()
        await asyncio.wait([self.task])

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()


@dataclass(eq=False)
class MemberNode(Node):
    """A service that shares the partitions of a topic with the others of its group."""

    membership: MemoryMembership

    async def stop(self) -> None:
        """SIGTERM: hand over, leave, end."""
        await self.process.spawn(self.membership.leave(), f"{self.process.name} leaves")
        await self.task

    def kill(self) -> None:
        """SIGKILL: the group notices after the session."""
        super().kill()
        self.membership.kill()

    def pause(self) -> None:
        """SIGSTOP: the group gives it up after the session, which it does not notice before it wakes up."""
        if self.process.condition is not Condition.RUNNING:
            return
        super().pause()
        asyncio.get_running_loop().call_later(self.membership.session_s, self._expire, self.process.pauses)

    def _expire(self, pause: int) -> None:
        if self.process.condition is Condition.PAUSED and self.process.pauses == pause:
            self.membership.expire()


@dataclass(eq=False)
class ExecutorNode(MemberNode):
    """An executor's process."""

    executor: Executor
    log: MemoryLog
    agents: Agents


def _nobody(_: Node) -> None:
    """Nobody is told."""


@dataclass
class Cluster:
    """In-memory Kafka, Postgres and object store, and the processes on them.

    ``store``, ``publisher``, ``inputs``, ``log``, ``clock`` and ``effects`` make the processes' clients where the plain
    in-memory ones are not wanted; each is called in its process.

    Attributes:
        seed: The processes' own chance is made of it, and of their numbers.
        nodes: Every process that was started, the dead ones too.
        on_node: Told of each, before it has taken its first step behind its start.
    """

    partitions: int = 2
    session_s: float = 10.0
    broker: MemoryBroker = field(init=False)
    database: MemoryDatabase = field(init=False)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    snapshot_every: int = 50
    compactor_poll_s: float = 0.5
    compacting: bool = True
    inline_limit: int = 65_536
    store: Callable[[MemoryDatabase], MemoryStore] = MemoryStore
    publisher: Callable[[MemoryBroker], MemoryPublisher] = MemoryPublisher
    inputs: Callable[[MemoryBroker], MemoryInputs] = MemoryInputs
    log: Callable[[MemoryBroker], MemoryLog] = MemoryLog
    clock: Callable[[], Clock] = LoopClock
    effects: Callable[[MemoryEffectsDatabase], EffectsTable] = MemoryEffects
    effects_database: MemoryEffectsDatabase = field(default_factory=MemoryEffectsDatabase)
    on_node: Callable[[Node], None] = _nobody
    max_busy_runs: int = 20_000
    seed: int = 0
    nodes: list[Node] = field(default_factory=list)
    _started: int = 0

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.partitions)
        self.database = MemoryDatabase(LoopClock())

    @classmethod
    @asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator[Self]:  # noqa: ANN401 - the class's own fields
        """A cluster with a compactor; everything ends with the block."""
        cluster = cls(**settings)
        if cluster.compacting:
            cluster.start_compactor()
        try:
            yield cluster
        finally:
            await cluster.close()

    async def close(self) -> None:
        """End every process.

        Raises:
            ExceptionGroup: Of what processes have ended with by themselves, or of those that do not end.
        """
        tasks = [task for node in self.nodes for task in node.process.bury()]
        ended, deaf = await asyncio.wait(tasks, timeout=_END_S) if tasks else (set(), set())
        main = {node.task for node in self.nodes}
        ended |= {task for task in main if task.done()}
        problems = [error for task in ended & main if not task.cancelled() and (error := task.exception())]
        problems += [DeafTask(f"cancelled, and goes on: {task.get_name()}") for task in deaf]
        if problems:
            raise BaseExceptionGroup("processes that did not end well", problems)

    async def start_executor(
        self, app: App, name: str = "executor", log: MemoryLog | None = None, revision: str = "rev-1"
    ) -> ExecutorNode:
        """Start a process and join the group."""
        process, seed = self._process(name)
        log = process.call(self.log, self.broker) if log is None else log
        membership = MemoryMembership(self.broker, "executors", TOPICS.requests, self.session_s)
        started: asyncio.Future[tuple[Executor, Agents]] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            effects = process.call(self.effects, self.effects_database)
            async with app.running("executor", revision=revision, effects=effects) as agents:
                executor = Executor(
                    log=log,
                    inputs=process.call(self.inputs, self.broker),
                    publisher=process.call(self.publisher, self.broker),
                    store=process.call(self.store, self.database),
                    blobs=self.blobs,
                    agents=agents,
                    clock=process.call(self.clock),
                    chance=SeededChance(seed),
                    settings=ExecutorSettings(
                        owner=process.name,
                        partitions=self.partitions,
                        inline_limit=self.inline_limit,
                        max_busy_runs=self.max_busy_runs,
                    ),
                )
                started.set_result((executor, agents))
                await executor.run(membership)

        task = process.spawn(run())

        def tell(done: asyncio.Task[None]) -> None:
            if not started.done():
                started.set_exception(_end_of(done))

        task.add_done_callback(tell)
        executor, agents = await started
        node = ExecutorNode(process, task, membership, executor, log, agents)
        return self._add(node)

    def start_compactor(self) -> MemberNode:
        """Start a compactor."""
        process, seed = self._process("compactor")
        compactor = Compactor(
            log=process.call(self.log, self.broker),
            store=process.call(self.store, self.database),
            publisher=process.call(self.publisher, self.broker),
            inputs=process.call(self.inputs, self.broker),
            blobs=self.blobs,
            clock=process.call(self.clock),
            chance=SeededChance(seed),
            settings=CompactorSettings(
                dead_topic=TOPICS.dead,
                notifications_topic=TOPICS.notifications,
                snapshot_every=self.snapshot_every,
                poll_s=self.compactor_poll_s,
            ),
        )
        membership = MemoryMembership(self.broker, "compactors", TOPICS.log, self.session_s)
        node = MemberNode(process, process.spawn(membership.run(compactor)), membership)
        return self._add(node)

    def start_reconciler(self, app: App, revision: str = "rev-1") -> Node:
        """Start a reconciler."""
        process, _ = self._process("reconciler")

        async def run() -> None:
            async with app.running("reconciler", revision=revision) as agents:
                reconciler = Reconciler(
                    process.call(self.store, self.database),
                    process.call(self.publisher, self.broker),
                    self.blobs,
                    agents,
                    process.call(self.clock),
                    ReconcilerSettings(holder=process.name),
                )
                await reconciler.run()

        node = Node(process, process.spawn(run()))
        return self._add(node)

    def _add(self, node: NodeT) -> NodeT:
        self.nodes.append(node)
        self.on_node(node)
        return node

    def _process(self, role: str) -> tuple[Process, int]:
        """Make a process, and give the seed of its chance."""
        self._started += 1
        return Process(f"{role}-{self._started}"), self.seed + self._started

    # --- the outside --------------------------------------------------------------------------------------------

    async def send(self, topic: str, run_id: str, value: bytes, partition: int | None = None) -> int:
        """Produce an input; gives its offset."""
        published = await MemoryPublisher(self.broker).publish(topic, run_id.encode(), value, partition=partition)
        return published.offset

    async def start(self, run_id: str, agent: str, input_json: object = "go", **fields: str) -> int:
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

    def landed_at(self, partition: int, offset: int) -> float:
        """When a record of the log came to stand there, by the loop's time."""
        stored = self.broker.slice(TOPICS.log, partition, offset, offset + 1)[0]
        ago_s = (LoopClock().now_ms() - stored.timestamp_ms) / 1000
        return asyncio.get_running_loop().time() - ago_s

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
        return await self._until_state(run_id, lambda state: state.ended is not None)

    async def waiting(self, run_id: str, reason: str) -> State:
        """Wait until a run waits for ``reason``; gives its state."""
        return await self._until_state(
            run_id, lambda state: any(wait.reason == reason for wait in state.waits.values())
        )

    async def _until_state(self, run_id: str, condition: Callable[[State], bool]) -> State:
        found: list[State] = []

        def holds() -> bool:
            state = self.state(run_id)
            if state is not None and condition(state):
                found.append(state)
            return bool(found)

        await self.until(holds)
        return found[-1]


def _end_of(task: asyncio.Task[None]) -> BaseException:
    """Say why a process ended before it had started."""
    error = None if task.cancelled() else task.exception()
    return error or RuntimeError(f"{task.get_name()} ended before it had started")
