"""Agents: what the runtime needs from the author's code. Carries JSON and message bytes; the SDK implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runfold.core.decisions import Planner
from runfold.core.events import Outcome, Recovery, Version
from runfold.core.policy import GRACE_S, LOOKUP_TRIES
from runfold.core.quick import quick
from runfold.core.state import EntryKind


@quick
@dataclass(frozen=True, slots=True)
class Message:
    """A transcript entry with its bytes: user: a JSON string; response: message bytes; tool: JSON for the model."""

    kind: EntryKind
    data: bytes
    tool_call_id: str = ""
    tool: str = ""
    outcome: str = ""
    message_format: str = ""


@quick
@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A completion. ``message`` holds everything that the provider said, in ``message_format``.

    Attributes:
        tool_calls: (id, tool name, arguments as the model wrote them); ids are unique within the answer.
        usage: Token counts by name; ``cost_nano_usd`` None: the price is unknown.
    """

    message: bytes
    message_format: str
    tool_calls: tuple[tuple[str, str, bytes], ...]
    finish_reason: str | None
    usage: Mapping[str, int]
    cost_nano_usd: int | None
    model: str


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """No completion. ``retryable``: another attempt may help; ``retry_after`` in seconds, if the provider said so."""

    error: str
    retryable: bool
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the runtime has to know of a tool; times in milliseconds.

    Attributes:
        key_ttl_ms: How long the downstream remembers a key; None: for ever.
        settle_ms: How long after a call has ended its lookup may still miss it; None: it never does.
        dedupe: The effects table stands in for a downstream that knows no keys.
        lookup_timeout_ms: Of one lookup; None: the asker's own.
        lookup_tries: Lookups that may fail before a person is asked.
    """

    name: str
    recovery: Recovery
    timeout_ms: int
    retries: int
    sequential: bool
    has_gate: bool
    has_lookup: bool
    key_ttl_ms: int | None = None
    settle_ms: int | None = None
    dedupe: bool = False
    lookup_timeout_ms: int | None = None
    lookup_tries: int = LOOKUP_TRIES


def may_always_start() -> bool:
    """Say yes: for who needs no acknowledgement."""
    return True


@quick
@dataclass(frozen=True, slots=True)
class Invocation:
    """One execution, lookup or approval question about a call.

    Attributes:
        arguments: Canonical JSON object, validated.
        values: The author's state: key -> JSON bytes.
        timeout_s: Seconds left from now on; the tool's ``ctx.deadline`` is made from it.
        may_start: Asked at the very last moment before the author's tool is called: whether the request's
            acknowledgement still proves ownership. Whatever waits, waits before it.
        recovery, dedupe, settle_ms: As the request froze them; ``recovery`` None: the running code's.
        absent_upto: Attempts up to this one are known not to have happened, though they may have begun.
        grace_s: How long after its time-out a call may still be on its way.
    """

    run_id: str
    agent: str
    step: int
    attempt: int
    tool: str
    tool_call_id: str
    idempotency_key: str
    arguments: bytes
    values: Mapping[str, bytes]
    timeout_s: float
    may_start: Callable[[], bool] = may_always_start
    recovery: Recovery | None = None
    dedupe: bool = False
    settle_ms: int | None = None
    absent_upto: int = 0
    grace_s: float = GRACE_S


@quick
@dataclass(frozen=True, slots=True)
class Returned:
    """The tool said how it ended: success, or an error that is known not to have had an effect.

    ``from_table``: the effects table says so, not this execution.
    """

    outcome: Outcome
    result: bytes
    for_model: bytes | None = None
    patch: bytes | None = None
    from_table: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether it happened: an exception, a time-out, an undecided lookup."""

    error: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class NotStarted:
    """``may_start`` said no at the moment of acting: nothing was done."""


@dataclass(frozen=True, slots=True)
class NotThere:
    """A lookup says that it did not happen (the author's ABSENT)."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The effects table holds the key, claimed by ``attempt``, without an outcome: nobody knows how that one ended."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GateAsked:
    """A call needs an approval; ``message`` and ``detail`` are for the approver."""

    message: str | None
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Valid:
    """Arguments that the tool accepts: canonical JSON object, defaults filled in."""

    arguments: bytes


@dataclass(frozen=True, slots=True)
class Invalid:
    """Arguments that it does not accept, or a tool that does not exist; ``error`` is JSON for the model."""

    error: bytes


class RunningAgent(Protocol):
    """One agent of the running code.

    Attributes:
        version: Of the running code.
        policy: ``on_version_change``: part -> accept, refuse, compatible.
        planner: See core.decisions.
        params: JSON object recorded with each model call (model name and settings); canonical.
        sequential: Names of its sequential tools.
    """

    name: str
    version: Version
    policy: Mapping[str, str]
    planner: Planner
    params: bytes
    sequential: frozenset[str]

    def first_message(self, input_json: bytes) -> bytes:
        """From a run's input to the first user message, a JSON string. Raises whatever the author's code raises."""
        ...

    def output(self, message: bytes, message_format: str) -> bytes:
        """From the final completion to the run's output, JSON. ``message_format`` is checked.

        Raises:
            core.errors.UnknownRecord: This code does not know the format.
        """
        ...

    def tool(self, name: str) -> ToolSpec | None:
        """What to know of a tool, or None if the agent has none of that name."""
        ...

    def validate(self, tool: str, arguments: bytes) -> Valid | Invalid:
        """Check the model's own arguments (any bytes)."""
        ...

    async def ask_model(self, run_id: str, messages: Sequence[Message], timeout_s: float) -> ModelAnswer | ModelFailure:
        """Ask the model once. Provider errors are answers, not exceptions; cancellation propagates."""
        ...

    def forget(self, run_id: str) -> None:
        """Drop whatever is kept of a run, which has left memory; it may come back."""
        ...

    async def gate(self, call: Invocation) -> GateAsked | None:
        """Ask whether a call needs an approval (``needs_approval``, or the author's ``.approval`` function)."""
        ...

    async def execute(self, call: Invocation) -> Returned | Unknown | NotStarted:
        """Run the tool if ``may_start`` allows it; a time-out is ``Unknown``. Cancellation propagates."""
        ...

    async def look_up(self, call: Invocation) -> Returned | NotThere | Begun | Unknown:
        """Ask what became of a call: the author's lookup, or the effects table where that keeps it.

        ``NotThere`` from the table proves nothing by itself: only another execution, or ``close``, does.
        """
        ...

    async def close(self, call: Invocation, returned: Returned) -> Returned | Begun | Unknown:
        """Let the effects table refuse every execution of a call from now on; ``returned`` if it had no outcome."""
        ...


class Agents(Protocol):
    """The agents of an app."""

    @property
    def revision(self) -> str:
        """Code revision."""
        ...

    def get(self, name: str) -> RunningAgent | None:
        """An agent by name."""
        ...
