"""An app whose agents are watched: every call of the author's code is noted, every decision judged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from runfold.core.decisions import Plan, Planner, tool_calling
from runfold.core.state import State
from runfold.ports.agents import (
    Agents,
    GateAsked,
    Invocation,
    Message,
    ModelAnswer,
    ModelFailure,
    NotStarted,
    Returned,
    RunningAgent,
    Unknown,
)
from runfold.ports.effects import EffectsTable
from runfold.sdk.app import App
from runfold.sdk.live import LiveApp
from runfold.testing.harness.journal import Call, Journal, call_of, note_outcome
from runfold.testing.simulation.loop import Process


class WatchedApp(App):
    """An app as the harness starts it.

    Args:
        app: The author's.
        journal: Where calls are noted.
        make_effects: Makes the effects table of a process, if it is the author's.
    """

    def __init__(self, app: App, journal: Journal, make_effects: Callable[[], EffectsTable] | None) -> None:
        self.__dict__.update(app.__dict__)
        self._app = app
        self._journal = journal
        self._make_effects = make_effects

    @asynccontextmanager
    async def running(
        self, role: str, *, revision: str | None = None, effects: EffectsTable | None = None
    ) -> AsyncIterator[LiveApp]:
        """Enter the author's lifespan, and watch it."""
        process = Process.current()
        assert process is not None, "an app of the harness runs in a process of it"  # noqa: S101 - for mypy
        if self._make_effects is not None:
            effects = self._make_effects()
        async with AsyncExitStack() as stack:
            with self._journal.noting(Call("lifespan", process.name), process) as call:
                entered = self._app.running(role, revision=revision, effects=effects)
                agents = await stack.enter_async_context(entered)
                call.outcome = "returned"
            asking = {
                (agent.name, tool.name)
                for agent in self._app.agents
                for tool in agent.tools
                if tool.approval_function is not None
            }
            yield cast("LiveApp", _WatchedAgents(agents, asking, self._journal, process))


class _WatchedAgents:
    """The port ``Agents``, watched."""

    def __init__(self, agents: Agents, asking: Collection[tuple[str, str]], journal: Journal, process: Process) -> None:
        self._agents = agents
        self._asking = asking
        self._journal = journal
        self._process = process
        self._watched: dict[str, _WatchedAgent] = {}

    @property
    def revision(self) -> str:
        return self._agents.revision

    def get(self, name: str) -> _WatchedAgent | None:
        if name not in self._watched:
            agent = self._agents.get(name)
            if agent is None:
                return None
            self._watched[name] = _WatchedAgent(agent, self._asking, self._journal, self._process)
        return self._watched[name]


class _WatchedAgent:
    """The port ``RunningAgent``, watched; what is not watched is the agent's own."""

    def __init__(
        self, agent: RunningAgent, asking: Collection[tuple[str, str]], journal: Journal, process: Process
    ) -> None:
        self._agent = agent
        self._asking = asking
        self._journal = journal
        self._process = process
        self.planner = agent.planner if agent.planner is tool_calling else self._judged(agent.planner)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._agent, name)

    def _judged(self, planner: Planner) -> Planner:
        def plan(state: State) -> Plan:
            return self._journal.judge(state, planner)

        return plan

    async def ask_model(self, run_id: str, messages: Sequence[Message], timeout_s: float) -> ModelAnswer | ModelFailure:
        asked = Call("model", self._process.name, run_id, arguments={"messages": len(messages)})
        with self._journal.noting(asked, self._process) as call:
            answer = await self._agent.ask_model(run_id, messages, timeout_s)
            note_outcome(call, answer)
            return answer

    async def gate(self, invocation: Invocation) -> GateAsked | None:
        if (self._agent.name, invocation.tool) not in self._asking:
            return await self._agent.gate(invocation)
        with self._journal.noting(call_of("approval", self._process, invocation), self._process) as call:
            answer = await self._agent.gate(invocation)
            note_outcome(call, answer)
            return answer

    async def execute(self, invocation: Invocation) -> Returned | Unknown | NotStarted:
        with self._journal.noting(call_of("tool", self._process, invocation), self._process) as call:
            outcome = await self._agent.execute(invocation)
            note_outcome(call, outcome)
            return outcome

    async def look_up(self, invocation: Invocation) -> Any:  # noqa: ANN401 - the port's answers
        with self._journal.noting(call_of("lookup", self._process, invocation), self._process) as call:
            answer = await self._agent.look_up(invocation)
            note_outcome(call, answer)
            return answer
