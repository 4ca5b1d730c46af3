"""What was really called of the author's code, by which process, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runfold.core.decisions import Plan, Planner
from runfold.core.events import Outcome
from runfold.core.state import State
from runfold.ports.agents import Invocation, ModelAnswer, ModelFailure, NotStarted, NotThere, Returned, Unknown
from runfold.testing.simulation.loop import Condition, Process


@dataclass(slots=True)
class Call:
    """One call of a function of the author, or of the model.

    Attributes:
        kind: ``tool``, ``lookup``, ``approval`` (the tool's approval function), ``model`` or ``lifespan``.
        run_id, tool, step, attempt, key, arguments: Where they apply; of a model call, how many ``messages``.
        outcome: ``running`` (a process that was killed leaves it so), ``returned``, ``failed`` (it said so:
            ``ModelRetry``, ``ToolFailed``, a model's error), ``unknown`` (any other exception, a time-out),
            ``absent`` (a lookup's answer) or ``refused`` (the runtime did not let it start).
        result: What was recorded of it, or the error in words.
        process: Name of the process.
    """

    kind: str
    process: str
    run_id: str = ""
    tool: str = ""
    step: int = 0
    attempt: int = 0
    key: str = ""
    arguments: Any = None
    outcome: str = "running"
    result: Any = None

    def __str__(self) -> str:
        if not self.tool:
            return f"the {self.kind}"
        named = self.tool if self.kind == "tool" else f"the {self.kind} function of {self.tool}"
        return f"{named} (step {self.step}, attempt {self.attempt})"


def ask(state: State, planner: Planner) -> Plan:
    """Ask a planner, and take its word."""
    return planner(state)


@dataclass
class Journal:
    """All calls of one harness, in their order.

    Attributes:
        ended: How many have ended.
        judge: Asks an author's planner.
    """

    calls: list[Call] = field(default_factory=list)
    ended: int = 0
    judge: Callable[[State, Planner], Plan] = ask
    _open: dict[int, tuple[Call, Process]] = field(default_factory=dict)

    def at_work(self) -> bool:
        """Whether a function of the author runs in a process that lives."""
        return any(process.condition is Condition.RUNNING for _, process in self._open.values())

    def running_in(self, process: Process) -> list[Call]:
        """Give the calls that run in a process, or ran in it when it was killed."""
        return [call for call, where in self._open.values() if where is process]

    @contextmanager
    def noting(self, call: Call, process: Process) -> Iterator[Call]:
        """Note a call for as long as it runs."""
        self.calls.append(call)
        self._open[id(call)] = call, process
        try:
            yield call
        finally:
            del self._open[id(call)]
            self.ended += 1


def call_of(kind: str, process: Process, invocation: Invocation) -> Call:
    """Begin the note of a call."""
    return Call(
        kind=kind,
        process=process.name,
        run_id=invocation.run_id,
        tool=invocation.tool,
        step=invocation.step,
        attempt=invocation.attempt,
        key=invocation.idempotency_key,
        arguments=json.loads(invocation.arguments),
    )


def note_outcome(call: Call, outcome: object) -> None:
    """Complete the note of a call."""
    match outcome:
        case Returned(outcome=how, result=result):
            call.outcome = "returned" if how is Outcome.SUCCESS else "failed"
            call.result = json.loads(result)
        case Unknown(error=error):
            call.outcome, call.result = "unknown", error
        case NotStarted():
            call.outcome = "refused"
        case NotThere():
            call.outcome = "absent"
        case ModelFailure(error=error):
            call.outcome, call.result = "failed", error
        case ModelAnswer(tool_calls=tool_calls):
            call.outcome, call.result = "returned", [tool for _, tool, _ in tool_calls]
        case _:
            call.outcome = "returned"
