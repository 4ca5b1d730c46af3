"""The stage of a directed scenario: a cluster, tools whose every act is remembered, and the judge's reading of the log.

A scenario plays one schedule on it and says nothing of right and wrong: the named checkers of the simulation do, when
all is calm again. So the same scenario shows that the system is right, and that a checker sees when it is not.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from runfold import ABSENT, Absent, Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.adapters.memory.membership import MemoryMembership
from runfold.codec import inputs as codec_inputs
from runfold.codec import log as log_codec
from runfold.core.events import LogRecordBody, ModelCallRequested, PartitionClaimed, RunEvent, ToolCallRequested
from runfold.testing import ScriptedModel
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.checkers import check
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode, MemberNode, Node
from runfold.testing.simulation.ending import Ending
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.history import History
from runfold.testing.simulation.loop import Condition, run_virtual
from runfold.testing.simulation.trace import quiet

REST_S = 60.0
"""Virtual seconds of calm before the checkers look."""
LIMIT_S = 20_000.0

Context = ToolContext[None]
Body = Callable[[Context], Awaitable[Any]]


@dataclass
class Stage:
    """What a scenario acts on.

    Attributes:
        cluster: The processes and their stores; its compactor runs from the start.
        book: Every call, effect and question, for the checkers.
        runs: Which were started.
        thinks: (run, number of the completion) -> the model answers when it is set.
    """

    cluster: Cluster
    history: History
    book: Book = field(default_factory=Book)
    runs: list[str] = field(default_factory=list)
    thinks: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)
    stopping: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book.log_end = self.history.log_end
        self.book.committed = self.cluster.effects_database.committed

    # --- the app ------------------------------------------------------------------------------------------------

    def app(self, *tools: Callable[..., Any], script: tuple[Any, ...] = (("act", {}), "done")) -> App:
        """An agent "a" with these tools; its model says the script."""
        return App([Agent("a", model=Scripted(self, script), instructions="", tools=list(tools))])

    def one_tool(self, recovery: Recovery, body: Body | None = None, **options: Any) -> App:
        """An agent that calls ``act`` once and is done."""
        return self.app(self.tool(recovery, body, **options))

    def tool(
        self,
        recovery: Recovery,
        body: Body | None = None,
        *,
        name: str = "act",
        lookup: Body | None = None,
        **options: Any,
    ) -> Any:
        """Declare a tool: a call of it is remembered, and ``body`` does the rest; None: have the effect at once.

        The lookup of a LOOKUP tool says truly what the downstream system knows by now, unless one is given.
        """

        async def act(ctx: Context) -> Any:
            """Act."""
            self.book.called(ctx, recovery)
            return await (self.perform(ctx, recovery) if body is None else body(ctx))

        async def find(ctx: Context) -> dict[str, str] | Absent:
            """Find."""
            if lookup is not None:
                found: dict[str, str] | Absent = await lookup(ctx)
                return found
            known: dict[str, str] | Absent = self.book.results.get(ctx.idempotency_key, ABSENT)
            return known

        act.__name__, find.__name__ = name, f"find_{name}"
        declared = tool(recovery=recovery, **options)(act)
        if recovery is Recovery.LOOKUP:
            declared.lookup(find)
        return declared

    async def perform(self, ctx: Context, recovery: Recovery) -> dict[str, str]:
        """Have the effect."""
        result: dict[str, str] = self.book.performed(ctx, recovery, {"id": f"{ctx.run_id}:{ctx.step}"})
        return result

    # --- processes and people -----------------------------------------------------------------------------------

    async def executor(self, app: App, name: str = "p0") -> tuple[ExecutorNode, FaultyLog]:
        """Start an executor, whose log client has faults that can be switched on; give both."""
        log = FaultyLog(self.cluster.broker)
        node = await self.cluster.start_executor(app, name, log)
        return node, log

    async def ready(self, app: App, name: str = "p0") -> tuple[ExecutorNode, FaultyLog]:
        """Start an executor, and wait until it drives its partitions."""
        node, log = await self.executor(app, name)
        await self.until(lambda: node.executor._owners and node.executor.ready)
        return node, log

    async def asleep_before_acting(self, app: App, before: Callable[[LogRecordBody], bool]) -> ExecutorNode:
        """P0 sleeps with a fresh acknowledgement of such a request in hand; P1 has taken over. Gives P0."""
        p0, log = await self.ready(app)
        log.trap = before
        await self.start()
        await self.until(lambda: log.hold_acks)
        self.suspend(p0)
        log.release()
        await self.ready(app, "p1")
        return p0

    async def dead_behind_the_effect(self, app: App) -> None:
        """P0 dies when the effect has happened, and before anybody has recorded that; P1 has taken over."""
        p0, _ = await self.ready(app)
        await self.start()
        await self.until(self.acts)
        p0.kill()
        await self.ready(app, "p1")

    async def start(self, run_id: str = "r1", partition: int | None = None, **fields: Any) -> int:
        """Produce ``run_started``; its input is its id, by which the model knows the run."""
        self.runs.append(run_id)
        value = codec_inputs.encode_start(run_id, "a", run_id, **fields)
        return await self.cluster.send(TOPICS.requests, run_id, value, partition)

    async def resolve(self, outcome: str, run_id: str = "r1", step: int = 2, **fields: Any) -> int:
        """A person says what became of a call."""
        return await self.cluster.request(run_id, codec_inputs.encode_resolve(run_id, step, outcome, "ops", **fields))

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a state."""
        await self.cluster.until(condition, 150.0)

    async def applied(self, partition: int = 0) -> None:
        """Wait until the compactor has committed everything that the log holds."""
        await self.until(lambda: self.is_applied(partition))

    def is_applied(self, partition: int = 0) -> bool:
        """Whether Postgres holds everything that the log holds."""
        row = self.cluster.database.partitions.get(partition)
        return row is not None and row.applied == self.cluster.broker.bounds(TOPICS.log, partition)[1]

    def has(self, kind: type[RunEvent], count: int = 1, run_id: str = "r1") -> bool:
        """Whether a run has so many valid events of a type."""
        return sum(isinstance(event, kind) for event in self.cluster.events(run_id)) >= count

    def acts(self, count: int = 1) -> bool:
        """Whether so many effects happened."""
        return len(self.book.effects) >= count

    def claims(self, partition: int = 0) -> int:
        """How often a partition was claimed."""
        return sum(isinstance(record, PartitionClaimed) for record in self.log(partition))

    def log(self, partition: int = 0) -> list[LogRecordBody]:
        """All records of a log partition, void ones included."""
        stored = self.cluster.broker.slice(TOPICS.log, partition, *self.cluster.broker.bounds(TOPICS.log, partition))
        return [log_codec.decode(record.value or b"") for record in stored]

    def compactor(self) -> MemberNode:
        """The compactor that was started first."""
        return next(node for node in self.cluster.nodes if isinstance(node, MemberNode) and not is_executor(node))

    def members(self) -> set[MemoryMembership]:
        """Who is in the executors' group."""
        return set(self.cluster.broker.groups["executors"]._targets)

    def suspend(self, node: MemberNode) -> None:
        """SIGSTOP; the group gives it up at once, and it never hears of it."""
        node.process.pause()
        node.membership.expire()
        node.membership.kill()

    async def wake(self, node: MemberNode, for_s: float = 0.1) -> None:
        """SIGCONT, and SIGKILL a moment later: what a zombie does, it does in its first moment."""
        node.resume()
        await asyncio.sleep(for_s)
        node.kill()

    # --- how it ended -------------------------------------------------------------------------------------------

    async def ending(self, unhandled: list[str]) -> Ending:
        """Everything that the checkers look at."""
        living = [node for node in self.cluster.nodes if node.process.condition is Condition.RUNNING]
        return await Ending.of(
            self.cluster,
            self.history,
            self.book,
            started=self.runs,
            executors=[node for node in living if isinstance(node, ExecutorNode) and not node.task.done()],
            unstopped=[task.get_name() for task in self.stopping if not task.done()],
            unhandled=unhandled,
        )


class Scripted(ScriptedModel):
    """A model that says its script, and whose every question is remembered; the run's id is its first message."""

    def __init__(self, stage: Stage, script: tuple[Any, ...]) -> None:
        super().__init__(script)
        self._stage = stage

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = messages[0].parts[-1]
        assert isinstance(prompt, UserPromptPart)
        run_id = str(prompt.content)
        position = sum(isinstance(message, ModelResponse) for message in messages)
        self._stage.book.asked(run_id, position)
        if (run_id, position) in self._stage.thinks:
            await self._stage.thinks[run_id, position].wait()
        return await super()._answer(messages, info)


def is_executor(node: Node) -> TypeGuard[ExecutorNode]:
    """Tell executors from compactors."""
    return isinstance(node, ExecutorNode)


def is_tool_request(record: LogRecordBody) -> bool:
    """A trap for ``FaultyLog``."""
    return isinstance(record, ToolCallRequested)


def is_a(kind: type[LogRecordBody]) -> Callable[[LogRecordBody], bool]:
    """Make a trap for ``FaultyLog``."""
    return lambda record: isinstance(record, kind)


def is_model_request(record: LogRecordBody) -> bool:
    """A trap for ``FaultyLog``."""
    return isinstance(record, ModelCallRequested)


class LateInputs(MemoryInputs):
    """Inputs whose readers begin three seconds late: a run gets on before an input comes to it."""

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> MemoryInputReader:
        """Open a reader, later."""
        await asyncio.sleep(3)
        return await super().open(partition, next_offsets)


Scenario = Callable[[Stage], Awaitable[None]]


def play(scenario: Scenario, settings: Mapping[str, Any]) -> list[str]:
    """Play a scenario on a cluster with these settings, and give what the checkers say of its end."""
    unhandled: list[str] = []
    problems: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(f"{context['message']}: {context.get('exception')!r}")
        )
        chosen: dict[str, Any] = {"partitions": 1, **settings}
        try:
            async with Cluster.running(**chosen) as cluster:
                stage = Stage(cluster, History(cluster.broker))
                try:
                    await scenario(stage)
                except TimeoutError:
                    problems.append("scenario: it did not come as far as it should")
                await asyncio.sleep(REST_S)
                problems.extend(check(await stage.ending(unhandled)))
        except* Exception as errors:  # noqa: BLE001 - of processes that ended by themselves; the checkers have spoken
            problems.extend(f"process: {error!r}" for error in errors.exceptions)

    with quiet():
        run_virtual(main(), LIMIT_S)
        gc.collect()
    return problems
