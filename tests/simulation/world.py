"""The app under test, its model, and the world behind its tools, which remembers what was really done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from pydantic_ai import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from runfold import ABSENT, Absent, Agent, App, Recovery, Result, ToolContext, tool
from runfold.testing import ScriptedModel
from runfold.testing.simulation.book import Book, now
from runfold.testing.simulation.weather import Weather

Downstream = Book
NO_SUCH_TOOL = "nosuch"
GRACE_S = 5.0
SETTLE_S = 20.0
KEY_TTL_S = 45.0
TOOL_OPTIONS: dict[str, tuple[Recovery, dict[str, Any]]] = {
    "keyed": (Recovery.KEYED, {}),
    "seq": (Recovery.KEYED, {"sequential": True}),
    "gated": (Recovery.KEYED, {"needs_approval": True}),
    "mgated": (Recovery.MANUAL, {"needs_approval": True}),
    "rerun": (Recovery.RERUN, {}),
    "manual": (Recovery.MANUAL, {}),
    "look": (Recovery.LOOKUP, {}),
    "seqlook": (Recovery.LOOKUP, {"sequential": True}),
    "settling": (Recovery.LOOKUP, {"settle": SETTLE_S}),
    "forgetful": (Recovery.KEYED, {"key_ttl": KEY_TTL_S}),
    "once": (Recovery.KEYED, {"dedupe": True}),
    "transactional": (Recovery.TRANSACTIONAL, {}),
}
"""Name -> recovery class, other options: the tools of the app."""
SYNC_TOOLS: dict[str, Recovery] = {
    "skeyed": Recovery.KEYED,
    "slook": Recovery.LOOKUP,
    "smanual": Recovery.MANUAL,
}
"""The same of the tools that are plain functions, and so run in a thread."""
SYNC_TIMEOUT_S = 2.0
ONCE = (Recovery.MANUAL, Recovery.LOOKUP)


@dataclass
class World:
    """What the app runs against.

    Attributes:
        timeout: Seconds of every tool.
        is_big: Results and patches are larger than what goes inline.
        slowness: After which share of ``SETTLE_S`` a lookup sees what was written.
        scripts: run_id -> what its model says: turns of tool calls, then a text.
        requested_at: When the request of an attempt landed, by the loop's time; None: unknown.
    """

    weather: Weather
    chance: Random
    requested_at: Callable[[str, int, int], float | None]
    timeout: float = 5.0
    is_big: bool = False
    slowness: float = 0.9
    book: Book = field(default_factory=Book)
    scripts: dict[str, list[Any]] = field(default_factory=dict)

    def app(self, _revision: str = "rev-1") -> App:
        """An agent with a tool of every class, in this world and no other: one simulation runs at a time."""
        app = _app(self.timeout)
        _STAGE.world = self
        return app

    async def find(self, key: str, name: str) -> dict[str, str] | Absent:
        """Look a key up, in the downstream system's own time."""
        trouble = self.weather.trouble
        if self.chance.random() < trouble:
            await asyncio.sleep(self.chance.choice([0.5, 8, 40]) * self.chance.random())
        if self.chance.random() < trouble * 0.5:
            raise RuntimeError("the lookup is down")
        found: dict[str, str] | Absent = self.book.results.get(key, ABSENT)
        if name == "settling" and now() < self.book.since.get(key, 0.0) + SETTLE_S * self.slowness:
            found = ABSENT  # what is written is not read yet
        self.book.tell(f"looked up {key}: {found}")
        if self.chance.random() < trouble:
            await asyncio.sleep(self.chance.random())
        return found

    async def act(self, ctx: ToolContext[None], recovery: Recovery, name: str) -> Result[dict[str, str]]:
        """Be called, misbehave, have an effect, and misbehave again."""
        self.book.called(ctx, recovery)
        if recovery is Recovery.TRANSACTIONAL:
            await self._misbehave()
            await self.book.performs(ctx)
            ticket = {"id": ctx.idempotency_key}
        elif recovery in ONCE or name in ("once", "forgetful"):
            with self.book.exposed(self._latest(ctx)):
                await self._misbehave()
                ticket = self._perform(ctx, recovery, name)
        else:
            await self._misbehave()
            ticket = self._perform(ctx, recovery, name)
        # Behind the effect there are only unknown outcomes: an error, or a time-out.
        fate = self.chance.random()
        if fate < self.weather.trouble * 0.5:
            raise RuntimeError("failed behind the effect")
        if fate < self.weather.trouble:
            await asyncio.sleep(self.chance.choice([1, 7, 30]))
        return self._result(ctx, ticket)

    def act_at_once(self, ctx: ToolContext[None], recovery: Recovery) -> Result[dict[str, str]]:
        """Do the same at one moment, as a thread that has taken its time does."""
        self.book.called(ctx, recovery)
        fate, trouble = self.chance.random(), self.weather.trouble
        if fate < trouble * 0.4:
            raise RuntimeError("failed before the effect")
        ticket = self._perform(ctx, recovery)
        if fate < trouble:
            raise RuntimeError("failed behind the effect")
        return self._result(ctx, ticket)

    def _latest(self, ctx: ToolContext[None]) -> float:
        """By when an effect has to be sent that nobody could be safe from later: see ``Book.exposed``."""
        since = self.requested_at(ctx.run_id, ctx.step, ctx.attempt)
        return (now() if since is None else since) + self.timeout + GRACE_S

    def _perform(self, ctx: ToolContext[None], recovery: Recovery, name: str = "") -> dict[str, str]:
        remembers_s = KEY_TTL_S if name == "forgetful" else math.inf
        ticket: dict[str, str] = self.book.performed(
            ctx, recovery, {"id": ctx.idempotency_key}, remembers_s=remembers_s, only_once=name == "once"
        )
        return ticket

    def _result(self, ctx: ToolContext[None], ticket: dict[str, str]) -> Result[dict[str, str]]:
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


@dataclass
class _Stage:
    """Where the app plays: making an app takes longer than a run does, so one plays in every world."""

    world: World | None = None

    @property
    def here(self) -> World:
        assert self.world is not None
        return self.world


_STAGE = _Stage()


@cache
def _app(timeout: float) -> App:
    tools = [_tool(name, recovery, timeout, options) for name, (recovery, options) in TOOL_OPTIONS.items()]
    tools += [_sync_tool(name, recovery) for name, recovery in SYNC_TOOLS.items()]
    return App([Agent("a", model=_Model(), instructions="", tools=tools)])


def _tool(name: str, recovery: Recovery, timeout: float, options: dict[str, Any]) -> Callable[..., Any]:
    async def act(ctx: ToolContext[None], n: int = 0) -> Result[dict[str, str]]:
        """Have an effect, sometimes, and sometimes say so."""
        return await _STAGE.here.act(ctx, recovery, name)

    return _declared(name, recovery, timeout, act, options)


def _sync_tool(name: str, recovery: Recovery) -> Callable[..., Any]:
    def act(ctx: ToolContext[None], n: int = 0) -> Result[dict[str, str]]:
        """Have an effect in a thread, which may outlive its time-out."""
        return _STAGE.here.act_at_once(ctx, recovery)

    return _declared(name, recovery, SYNC_TIMEOUT_S, act, {})


def _declared(
    name: str, recovery: Recovery, timeout: float, act: Callable[..., Any], options: dict[str, Any]
) -> Callable[..., Any]:
    async def find(ctx: ToolContext[None], n: int = 0) -> dict[str, str] | Absent:
        """Say what the downstream system knows, if it is there, in its own time."""
        return await _STAGE.here.find(ctx.idempotency_key, name)

    act.__name__, find.__name__ = name, f"find_{name}"
    declared = tool(recovery=recovery, timeout=timeout, **options)(act)
    if recovery is Recovery.LOOKUP:
        declared.lookup(find)
    return declared


class _Model(ScriptedModel):
    """Says what the script of the run says; is slow at times, and fails. The run's id is its first message."""

    def __init__(self) -> None:
        super().__init__(["never said"])

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        world = _STAGE.here
        prompt = messages[0].parts[-1]
        assert isinstance(prompt, UserPromptPart)
        run_id = str(prompt.content)
        position = sum(isinstance(message, ModelResponse) for message in messages)
        world.book.asked(run_id, position)
        if world.chance.random() < 0.4:
            await asyncio.sleep(world.chance.random() * 3)
        if world.chance.random() < world.weather.trouble * 0.6:
            raise RuntimeError("the model is down")
        answer: Callable[..., Awaitable[ModelResponse]] = ScriptedModel(world.scripts[run_id])._answer
        return await answer(messages, info)
