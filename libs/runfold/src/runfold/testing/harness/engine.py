"""The runtime of one harness, on its loop: the cluster, who dies and who comes after, and what can be waited for."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from runfold.adapters.memory.dead import MemoryDeadLetters
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryStore
from runfold.client.client import Client
from runfold.client.inputs import Submitted
from runfold.client.reader import Settled
from runfold.codec.log import type_name
from runfold.core.events import Event
from runfold.ports.effects import EffectsTable
from runfold.sdk.app import App
from runfold.testing.harness.errors import CrashNeverHappenedError
from runfold.testing.harness.journal import Journal
from runfold.testing.harness.ledger import Ledger
from runfold.testing.harness.loop import HarnessLoop
from runfold.testing.harness.traps import Trap, TrappedLog
from runfold.testing.harness.watching import WatchedApp
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode, Node
from runfold.testing.simulation.loop import Condition, Process

T = TypeVar("T")

SETTLED_S = 600.0
_STRIDE_S = 60.0
_STRIDES = 12
_BREATH_S = 1.0
# It wakes up for records anyway; this is how often it does for nothing.
_COMPACTOR_POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What an author may choose; seconds.

    Attributes:
        revision: Code revision of the first app.
        snapshot_every: As ``RUNFOLD_SNAPSHOT_EVERY``.
        session_s: How long the group waits before it gives the partitions of a killed executor to the next one.
        effects: Makes the effects table of a process; None: one in memory.
    """

    revision: str = "rev-1"
    snapshot_every: int = 50
    session_s: float = 10.0
    effects: Callable[[], EffectsTable] | None = None


class Engine:
    """One runtime. All of it runs on one ``HarnessLoop``.

    Args:
        make_app: The app as a new process would import it.

    Attributes:
        revision: Of the code that a new executor runs.
        traps: Crashes that have not happened.
        journal, ledger: What was called, and what the log says.
        client: Reads and writes as ``runfold.Client`` does.
        on_input: Told when an input is about to be sent.
        on_executor: Told of every executor that was started.
        on_crash: Told of every process that is killed, at that moment.
    """

    client: Client
    ledger: Ledger

    def __init__(self, make_app: Callable[[], App], settings: Settings) -> None:
        self.revision = settings.revision
        self.traps: list[Trap] = []
        self.journal = Journal()
        self.on_input: Callable[[], None] = _nothing
        self.on_executor: Callable[[ExecutorNode], None] = _ignore
        self.on_crash: Callable[[Process], None] = _ignore
        self._make_app = make_app
        self._failure: BaseException | None = None
        self._starting: dict[asyncio.Task[None], None] = {}
        self._waiting: dict[asyncio.Event, None] = {}
        self._closing = False
        self._settings = settings

    async def open(self) -> None:
        """Start everything.

        Raises:
            Exception: Whatever the author's lifespan raises.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HarnessLoop), "the engine runs on its own loop"  # noqa: S101 - for mypy
        self._loop = loop
        loop.at_work = self.journal.at_work
        self.cluster = cluster = Cluster(
            partitions=1,
            session_s=self._settings.session_s,
            snapshot_every=self._settings.snapshot_every,
            compactor_poll_s=_COMPACTOR_POLL_S,
            log=lambda broker: TrappedLog(broker, self.traps, self._spring),
            on_node=self._watch,
        )
        self.ledger = Ledger(cluster.broker)
        self.client = Client(
            log=MemoryLog(cluster.broker),
            publisher=MemoryPublisher(cluster.broker),
            queries=MemoryStore(cluster.database),
            blobs=cluster.blobs,
            dead=MemoryDeadLetters(cluster.broker),
            topics=TOPICS,
            partitions=cluster.partitions,
        )
        try:
            cluster.start_compactor()
            await self._start_executor()
            self._start_reconciler()
        except BaseException:
            await self.close()
            raise

    async def close(self, *, in_order: bool = False) -> None:
        """End every process.

        Raises:
            CrashNeverHappenedError: With ``in_order``: a crash is still armed.
        """
        self._closing = True
        if self._starting:
            _, late = await asyncio.wait(list(self._starting), timeout=SETTLED_S)
            for task in late:
                task.cancel()
        await self.cluster.close()
        if in_order:
            self._raise_failure()
        if in_order and self.traps:
            reached = [f"{one.run_id}: {_last(one)}" for one in self._last_events()]
            message = (
                f"{', '.join(map(str, self.traps))} never happened: no such event was appended. "
                f"The runs ended at {'; '.join(reached) or 'nothing: none was started'}"
            )
            raise CrashNeverHappenedError(message)

    # --- processes ----------------------------------------------------------------------------------------------

    async def _start_executor(self) -> None:
        app = WatchedApp(self._make_app(), self.journal, self._settings.effects)
        self.on_executor(await self.cluster.start_executor(app, revision=self.revision))

    def _start_reconciler(self) -> None:
        app = WatchedApp(self._make_app(), self.journal, self._settings.effects)
        self.cluster.start_reconciler(app, revision=self.revision)

    def _watch(self, node: Node) -> None:
        node.task.add_done_callback(self._ended, context=contextvars.Context())

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A process that ends by itself with an error is the test's error."""
        if not self._closing and not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._wake()

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    @property
    def executors(self) -> list[ExecutorNode]:
        """The executors that live."""
        return [
            node
            for node in self.cluster.nodes
            if isinstance(node, ExecutorNode) and node.process.condition is Condition.RUNNING and not node.task.done()
        ]

    async def replace(self, make_app: Callable[[], App] | None, revision: str) -> None:
        """SIGTERM to executor and reconciler, then new ones: of the same app, or of another."""
        self.revision = revision
        self._make_app = make_app or self._make_app
        await self._all_started()
        await self._start_executor()
        gone = [node for node in self.cluster.nodes if node.process.name.startswith("reconciler")]
        for node in [*self.executors[:-1], *gone]:
            if not node.task.done():
                await node.stop()
        self._start_reconciler()

    async def _all_started(self) -> None:
        while self._starting:
            await asyncio.wait(list(self._starting))
        self._raise_failure()

    # --- crashes ------------------------------------------------------------------------------------------------

    def arm(self, trap: Trap) -> None:
        """Arm a crash; one without an event happens now."""
        if trap.event is not None:
            self.traps.append(trap)
            return
        doomed = self.executors
        trap.where = f"{', '.join(node.process.name for node in doomed) or 'nobody'}, now"
        for node in doomed:
            self.kill(node)

    def _spring(self, trap: Trap, event: Event) -> None:
        """Kill the process that appends ``event``: this code runs in it."""
        process = Process.current()
        node = next((one for one in self.executors if one.process is process), None)
        if node is None:
            return
        self.traps.remove(trap)
        trap.where = f"{node.process.name}, {'before' if trap.before else 'after'} {_last(event)}"
        self.kill(node)

    def kill(self, node: ExecutorNode) -> None:
        """SIGKILL; somebody starts the next one at once."""
        node.process.kill()
        self.on_crash(node.process)
        # In the world's name: nothing of the process runs any more.
        self._loop.call_soon(self._succeed, node, context=contextvars.Context())

    def _succeed(self, node: ExecutorNode) -> None:
        node.kill()
        self._wake()
        task = self._loop.create_task(self._start_executor(), name="the next executor")
        self._starting[task] = None
        task.add_done_callback(self._has_started)

    def _has_started(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def sprung(self, trap: Trap) -> None:
        """Wait until a crash has happened, or nothing moves any more."""
        await self.until(lambda: trap.where is not None or self.ledger.refresh().is_at_rest, SETTLED_S, str(trap))

    # --- inputs -------------------------------------------------------------------------------------------------

    async def settled(self, submitted: Submitted) -> Settled:
        """Wait for what becomes of an input.

        Raises:
            TimeoutError: Nothing has.
        """
        settling = asyncio.ensure_future(self.client.settled(submitted, timeout_s=SETTLED_S))
        try:
            await self.until(settling.done, SETTLED_S + _BREATH_S, f"an input of run {submitted.run_id}", settling)
        finally:
            settling.cancel()
        found = settling.result()
        if found is None:
            raise TimeoutError(f"an input of run {submitted.run_id} was not handled in {SETTLED_S:g} virtual seconds")
        return found

    # --- waiting ------------------------------------------------------------------------------------------------

    async def until(
        self,
        condition: Callable[[], T],
        timeout_s: float,
        what: str,
        also: asyncio.Future[Any] | None = None,
    ) -> T:
        """Wait until something holds; looked at whenever the log grows, a process dies, or ``also`` is done.

        Raises:
            TimeoutError: It does not come.
            BaseException: A process has ended by itself, with this.
        """
        try:
            async with asyncio.timeout(timeout_s):
                with self._looking() as changed:
                    if also is not None:
                        also.add_done_callback(lambda _: changed.set())
                    while not (found := condition()):
                        self._raise_failure()
                        await changed.wait()
                        changed.clear()
                    return found
        except TimeoutError:
            reached = "; ".join(f"{one.run_id} is at {_last(one)}" for one in self._last_events())
            message = f"{what}: not in {timeout_s:g} virtual seconds ({reached or 'no run was started'})"
            raise TimeoutError(message) from None

    @contextmanager
    def _looking(self) -> Iterator[asyncio.Event]:
        places = [(TOPICS.log, partition) for partition in range(self.cluster.partitions)]
        with self.cluster.broker.waiting(places) as changed:
            self._waiting[changed] = None
            try:
                yield changed
            finally:
                del self._waiting[changed]

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def caught_up(self) -> None:
        """Wait until Postgres knows what the log says."""
        async with asyncio.timeout(SETTLED_S):
            for partition in range(self.cluster.partitions):
                _, end = self.cluster.broker.bounds(TOPICS.log, partition)
                while (row := self.cluster.database.partitions.get(partition)) is None or row.applied < end:
                    self._raise_failure()
                    await asyncio.sleep(0.01)

    async def advance(self, seconds: float) -> None:
        """Let time pass; while every run is at rest, in strides in which only each timer's last ring is heard."""
        loop = self._loop
        end = loop.time() + seconds
        stride = max(_STRIDE_S, seconds / _STRIDES)
        while (left := end - loop.time()) > 0:
            self._raise_failure()
            if left > _STRIDE_S and self.ledger.refresh().is_at_rest and not self._starting:
                loop.skip(min(stride, left - _BREATH_S))
            await asyncio.sleep(min(_BREATH_S, left))

    # --- what people are told -----------------------------------------------------------------------------------

    def _last_events(self) -> list[Event]:
        last: dict[str, Event] = {event.run_id: event for event in self.ledger.refresh().events}
        return list(last.values())

    def world(self) -> tuple[int, ...]:
        """Give numbers that change with whatever a process leaves behind, should it die now.

        What a function of the author does while it runs is not among them.
        """
        broker, database = self.cluster.broker, self.cluster.database
        records = sum(broker.bounds(topic, p)[1] for topic in broker.topics.all for p in range(broker.partitions))
        rows = sum(row.version for row in database.partitions.values())
        kept = len(self.cluster.effects_database.rows) + len(self.cluster.blobs.stored)
        return records, rows, kept, len(self.journal.calls), self.journal.ended


def _last(event: Event) -> str:
    step = getattr(event, "step", None)
    return type_name(type(event)) + ("" if step is None else f" of step {step}")


def _nothing() -> None:
    """Nobody is told."""


def _ignore(_: object) -> None:
    """Nobody is told."""
