"""The app under test, its model, and the world behind its tools, which remembers what was really done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pydantic_ai import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from runfold import ABSENT, Absent, Agent, App, Recovery, Result, ToolContext, tool
from runfold.testing import ScriptedModel
from tests.simulation.faults import Weather
from tests.simulation.history import History

NO_SUCH_TOOL = "nosuch"
TOOL_OPTIONS: dict[str, tuple[Recovery, dict[str, bool]]] = {
    "keyed": (Recovery.KEYED, {}),
    "seq": (Recovery.KEYED, {"sequential": True}),
    "gated": (Recovery.KEYED, {"needs_approval": True}),
    "mgated": (Recovery.MANUAL, {"needs_approval": True}),
    "rerun": (Recovery.RERUN, {}),
    "manual": (Recovery.MANUAL, {}),
    "look": (Recovery.LOOKUP, {}),
    "seqlook": (Recovery.LOOKUP, {"sequential": True}),
}
"""Name -> recovery class, other options: the tools of the app."""


@dataclass(frozen=True, slots=True)
class Act:
    """Author's code was called (or had its effect) when the log of the run's partition had ``log_end`` records."""

    run_id: str
    step: int
    attempt: int
    recovery: Recovery
    log_end: int

    @property
    def key(self) -> str:
        """The idempotency key that was handed over."""
        return f"{self.run_id}:{self.step}"


@dataclass(frozen=True, slots=True)
class Question:
    """The model was asked for completion number ``position`` of a run (from 0)."""

    run_id: str
    position: int
    log_end: int


@dataclass
class Downstream:
    """The world behind the tools: it keeps one ticket a key, and remembers everything for the checkers."""

    tickets: dict[str, dict[str, str]] = field(default_factory=dict)
    calls: list[Act] = field(default_factory=list)
    effects: list[Act] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def perform(self, act: Act) -> dict[str, str]:
        """Have the effect; a key that is known gets the ticket that it has."""
        self.effects.append(act)
        return self.tickets.setdefault(act.key, {"id": act.key})


@dataclass
class World:
    """What the app runs against.

    Attributes:
        timeout: Seconds of every tool.
        is_big: Results and patches are larger than what goes inline.
        scripts: run_id -> what its model says: turns of tool calls, then a text.
    """

    history: History
    weather: Weather
    chance: Random
    timeout: float = 5.0
    is_big: bool = False
    downstream: Downstream = field(default_factory=Downstream)
    scripts: dict[str, list[Any]] = field(default_factory=dict)

    def app(self) -> App:
        """An agent with a tool of every class."""
        tools = [self._tool(name, recovery, options) for name, (recovery, options) in TOOL_OPTIONS.items()]
        return App([Agent("a", model=_Model(self), instructions="", tools=tools)])

    def _tool(self, name: str, recovery: Recovery, options: dict[str, bool]) -> Callable[..., Any]:
        async def act(ctx: ToolContext[None], n: int = 0) -> Result[dict[str, str]]:
            """Have an effect, sometimes, and sometimes say so."""
            return await self._act(ctx, recovery)

        async def find(ctx: ToolContext[None], n: int = 0) -> dict[str, str] | Absent:
            """Say what the downstream system knows, if it is there."""
            if self.chance.random() < self.weather.trouble * 0.5:
                raise RuntimeError("the lookup is down")
            return self.downstream.tickets.get(ctx.idempotency_key, ABSENT)

        act.__name__, find.__name__ = name, f"find_{name}"
        declared = tool(recovery=recovery, timeout=self.timeout, **options)(act)
        if recovery is Recovery.LOOKUP:
            declared.lookup(find)
        return declared

    async def _act(self, ctx: ToolContext[None], recovery: Recovery) -> Result[dict[str, str]]:
        self.downstream.calls.append(self._now(ctx, recovery))
        await self._misbehave()
        ticket = self.downstream.perform(self._now(ctx, recovery))
        # Behind the effect there are only unknown outcomes: an error, or a time-out.
        fate = self.chance.random()
        if fate < self.weather.trouble * 0.5:
            raise RuntimeError("failed behind the effect")
        if fate < self.weather.trouble:
            await asyncio.sleep(self.chance.choice([1, 7, 30]))
        patch = None
        if self.chance.random() < 0.5:
            patch = {f"k{ctx.step}": ctx.step, "sum": "x" * (3000 if self.is_big else 3)}
        padding = "y" * self.chance.choice([1, 5000 if self.is_big else 1])
        return Result({**ticket, "padding": padding}, patch=patch)

    async def _misbehave(self) -> None:
        fate, trouble = self.chance.random(), self.weather.trouble
        if fate > trouble:
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.random() * 2)
        elif fate < trouble * 0.4:
            raise RuntimeError("failed before the effect")
        elif fate < trouble * 0.6:
            await asyncio.sleep(self.chance.choice([3, 7, 30]))
        elif fate < trouble * 0.8:
            raise ModelRetry("say it otherwise")
        else:
            await asyncio.sleep(self.chance.random())

    def _now(self, ctx: ToolContext[None], recovery: Recovery) -> Act:
        return Act(ctx.run_id, ctx.step, ctx.attempt, recovery, self.history.log_end(ctx.run_id))


class _Model(ScriptedModel):
    """Says what the script of the run says; is slow at times, and fails. The run's id is its first message."""

    def __init__(self, world: World) -> None:
        super().__init__(["never said"])
        self._world = world

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        world = self._world
        prompt = messages[0].parts[-1]
        assert isinstance(prompt, UserPromptPart)
        run_id = str(prompt.content)
        position = sum(isinstance(message, ModelResponse) for message in messages)
        world.downstream.questions.append(Question(run_id, position, world.history.log_end(run_id)))
        if world.chance.random() < 0.4:
            await asyncio.sleep(world.chance.random() * 3)
        if world.chance.random() < world.weather.trouble * 0.6:
            raise RuntimeError("the model is down")
        answer: Callable[..., Awaitable[ModelResponse]] = ScriptedModel(world.scripts[run_id])._answer
        return await answer(messages, info)
