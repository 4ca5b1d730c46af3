"""What the world outside remembers: which calls reached it, which had their effect, what the models were asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from runfold import ToolContext
from runfold.adapters.memory.clock import LoopClock
from runfold.core.events import Recovery
from runfold.testing.simulation.loop import Process

EFFECT = "effect"
"""The statement by which a TRANSACTIONAL tool of a simulation has its effect."""


@dataclass(frozen=True, slots=True)
class Act:
    """Author's code was called (or had its effect) when the log of the run's partition had ``log_end`` records.

    Attributes:
        is_new: Of an effect: the world is another now. Not so where the downstream system knew the key.
        only_once: Nobody downstream would notice a second one.
    """

    run_id: str
    step: int
    attempt: int
    recovery: Recovery
    log_end: int
    is_new: bool = True
    only_once: bool = False

    @property
    def key(self) -> str:
        """The idempotency key that was handed over."""
        return f"{self.run_id}:{self.step}"


@dataclass(frozen=True, slots=True)
class Question:
    """The model was asked for completion number ``position`` of a run (from 0).

    Attributes:
        at_ms: When, by the broker's clock.
        by: Name of the process.
    """

    run_id: str
    position: int
    log_end: int
    at_ms: int = 0
    by: str = ""


class Called(Protocol):
    """What a tool's context says of its call: ``runfold.ToolContext`` does."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def step(self) -> int:
        """The step of the call."""

    @property
    def attempt(self) -> int:
        """Which execution of the step, from 1."""


@dataclass
class Book:
    """The book of everything outside; the checkers of effects read it, and nothing of the system does.

    An author's tool writes into it: ``called`` first, ``performed`` at the very moment of the effect.

    Attributes:
        calls: Every call of a tool, in order.
        effects: Every effect, in order: a key that was performed twice stands here twice.
        questions: Every question to a model, in order.
        committed: Statements that TRANSACTIONAL tools have committed, in order; those of ``performs`` are effects.
        since: Key -> when it had its first effect, by the loop's time.
        results: Key -> what the downstream system keeps under it, for lookups and for people who look.
        log_end: How many records the log of a run's partition has; ``simulate`` connects it.
    """

    calls: list[Act] = field(default_factory=list)
    effects: list[Act] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    committed: list[tuple[Any, Any]] = field(default_factory=list)
    since: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    log_end: Callable[[str], int] = field(default=lambda _: 0, repr=False)
    tell: Callable[[str], None] = field(default=lambda _: None, repr=False)
    _exposed: dict[Process, dict[object, float]] = field(default_factory=dict, repr=False, init=False)

    def close(self) -> Self:
        """Give a copy that stays as it is: processes are buried later, and what they do then never happened."""
        return replace(
            self,
            calls=list(self.calls),
            effects=list(self.effects),
            questions=list(self.questions),
            committed=list(self.committed),
        )

    def called(self, ctx: Called, recovery: Recovery) -> None:
        """A tool was called."""
        self.calls.append(self._act(ctx, recovery))
        self.tell(f"tool called {ctx.run_id}:{ctx.step} attempt {ctx.attempt}")

    def performed(
        self,
        ctx: Called,
        recovery: Recovery,
        result: Any,  # noqa: ANN401 - any JSON value
        *,
        remembers_s: float = math.inf,
        only_once: bool = False,
    ) -> Any:  # noqa: ANN401 - any JSON value
        """A tool has its effect now; a key that is known keeps the result that it has, which is given.

        Args:
            ctx: The tool's context.
            recovery: Its class: what is neither MANUAL nor LOOKUP meets a downstream that knows keys.
            result: What the downstream system answers.
            remembers_s: For how long it knows a key.
            only_once: It knows none, whatever the class (``dedupe``).
        """
        key = f"{ctx.run_id}:{ctx.step}"
        known_since = self.since.setdefault(key, now())
        only_once = only_once or recovery in (Recovery.MANUAL, Recovery.LOOKUP)
        is_new = only_once or key not in self.results or now() - known_since > remembers_s
        act = replace(self._act(ctx, recovery), is_new=is_new, only_once=only_once)
        self.effects.append(act)
        self.tell(f"EFFECT {key} attempt {ctx.attempt}{'' if is_new else ' (known)'}")
        return self.results.setdefault(key, result)

    async def performs(self, ctx: ToolContext[Any]) -> None:
        """Do the same in a TRANSACTIONAL tool: the effect happens with the commit."""
        self.tell(f"wrote {ctx.idempotency_key} attempt {ctx.attempt}")
        await ctx.connection.execute(EFFECT, (ctx.idempotency_key, ctx.attempt))

    def asked(self, run_id: str, position: int) -> None:
        """A model was asked."""
        process = Process.current()
        by = "" if process is None else process.name
        self.questions.append(Question(run_id, position, self.log_end(run_id), LoopClock().now_ms(), by))
        self.tell(f"model asked {run_id} completion {position}")

    def exposed(self, until: float) -> AbstractContextManager[None]:
        """Between the last check of the running process and the send of an effect that must not come late.

        For LOOKUP and MANUAL tools a pause *there*, for longer than ``timeout`` + grace behind the request, is the one
        documented exception. Nobody can be safe from it, so the scheduler ends a pause of this process, and of no
        other, at the loop's time ``until``.
        """
        return self._expose(until)

    @contextmanager
    def _expose(self, until: float) -> Iterator[None]:
        process, mark = Process.current(), object()
        exposed = {} if process is None else self._exposed.setdefault(process, {})
        exposed[mark] = until
        try:
            yield
        finally:
            exposed.pop(mark, None)

    def wake_by(self, process: Process) -> float | None:
        """The loop's time by which a pause of a process has to end; None: whenever."""
        return min(self._exposed.get(process, {}).values(), default=None)

    def _act(self, ctx: Called, recovery: Recovery) -> Act:
        return Act(ctx.run_id, ctx.step, ctx.attempt, recovery, self.log_end(ctx.run_id))


def now() -> float:
    """The running loop's time, in virtual seconds."""
    return asyncio.get_running_loop().time()
