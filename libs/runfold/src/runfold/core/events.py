"""What can stand in the log: frozen dataclasses, named in the past tense.

Every event of a run carries ``run_id``, its ``seq`` (0, 1, 2 ... without a hole), the ``epoch`` of its writer (the
offset of the claim that the writer appended), ``at`` (milliseconds since 1970 by the writer's wall clock,
for people only: nothing is decided by it) and the ``cause`` (the input that it settles), if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runfold.core.payload import Payload
from runfold.core.quick import quick


class Recovery(StrEnum):
    """What to do when nobody knows whether a tool's effect happened."""

    RERUN = "rerun"
    KEYED = "keyed"
    LOOKUP = "lookup"
    TRANSACTIONAL = "transactional"
    MANUAL = "manual"


class Why(StrEnum):
    """Why an attempt was requested."""

    FIRST = "first"
    RETRY = "retry"
    TAKEOVER = "takeover"
    STALE = "stale"
    ABSENT = "absent"


class Source(StrEnum):
    """Where a tool's result came from."""

    CALL = "call"
    RECONCILED = "reconciled"
    EFFECTS_TABLE = "effects_table"
    OPERATOR = "operator"
    DENIED = "denied"
    INVALID = "invalid"


class Outcome(StrEnum):
    """How a tool call ended, as the model is told (pydantic-ai's ``ToolReturnPart.outcome``)."""

    SUCCESS = "success"
    FAILED = "failed"
    RETRIED = "retried"
    DENIED = "denied"


class WaitReason(StrEnum):
    """Why a run waits."""

    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_SIGNAL = "awaiting_signal"
    AWAITING_RESULT = "awaiting_result"
    AWAITING_MESSAGE = "awaiting_message"
    TIMER = "timer"
    VERSION_MISMATCH = "version_mismatch"
    UNKNOWN_AGENT = "unknown_agent"
    INDETERMINATE = "indeterminate"
    BUDGET_EXCEEDED = "budget_exceeded"
    ERROR = "error"


class Settlement(StrEnum):
    """What became of an input that caused no event of its run (``InputSettled.outcome``)."""

    DUPLICATE = "duplicate"
    DEAD = "dead"
    FORWARDED = "forwarded"
    STALE = "stale"


@quick
@dataclass(frozen=True, slots=True)
class Cause:
    """The input behind a record: where it stood, and its explicit id if it had one (a forwarded input: its origin)."""

    topic: str
    partition: int
    offset: int
    id: str | None = None


@quick
@dataclass(frozen=True, slots=True)
class Version:
    """What a run was started or last accepted under; parts are None while its agent is unknown.

    Attributes:
        revision: Code revision of the app.
        prompt_hash: Digest of instructions, model settings and output schema.
        tools_hash: Digest over all tools' signatures.
        model: Model identity, e.g. ``openai:gpt-5``.
        tools: Signature of each tool, by name; sorted.
    """

    revision: str | None = None
    prompt_hash: str | None = None
    tools_hash: str | None = None
    model: str | None = None
    tools: tuple[tuple[str, str], ...] = ()


UNKNOWN_VERSION = Version()


@quick
@dataclass(frozen=True, slots=True)
class AskedCall:
    """A tool call as the model asked for it: ``arguments`` are its own bytes, not validated."""

    tool_call_id: str
    tool: str
    arguments: Payload


# --- records of the partition -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClaimed:
    """A new owner; the offset of this record is its epoch."""

    owner: str
    revision: str
    nonce: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettled:
    """An input that caused no event: a duplicate, a dead, a forwarded or a stale one.

    Attributes:
        reason: For a dead one, the machine-readable reason (``not_open``, ``run_exists`` ...).
        detail: What is wrong and how to mend it, for a person.
    """

    epoch: int
    at: int
    cause: Cause
    outcome: Settlement
    run_id: str | None = None
    reason: str | None = None
    detail: str | None = None


# --- events of a run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What all events of a run share."""

    run_id: str
    seq: int
    epoch: int
    at: int
    cause: Cause | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    """A run exists. ``first_message`` (a JSON string) is None while the agent is unknown."""

    agent: str
    input: Payload
    version: Version
    first_message: Payload | None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRequested(RunEvent):
    """A model is about to be asked; ``params`` is a JSON object (model name and settings)."""

    step: int
    attempt: int
    why: Why
    messages_hash: str
    message_count: int
    params: Payload


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponded(RunEvent):
    """A completion. ``message`` is the provider-neutral message as pydantic-ai serialises it, nothing left out.

    Attributes:
        usage: Token counts by name (``input_tokens``, ``output_tokens``, ...); sorted.
        cost_nano_usd: Billionths of a dollar; None where the price is unknown.
    """

    step: int
    attempt: int
    message: Payload
    message_format: str
    tool_calls: tuple[AskedCall, ...]
    finish_reason: str | None
    usage: tuple[tuple[str, int], ...]
    cost_nano_usd: int | None
    model: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFailed(RunEvent):
    """The model gave no completion. ``retry_at``: milliseconds since 1970, None when it will not be retried."""

    step: int
    attempt: int
    error: str
    retry_at: int | None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRequested(RunEvent):
    """A tool is about to be executed with validated ``arguments`` (a canonical JSON object).

    Attributes:
        sequential: No other call of the turn is opened before this one has returned.
        key_ttl_ms: How long the downstream remembers the idempotency key; None: for ever.
        settle_ms: How long after a call has ended its lookup may still miss it.
        dedupe: The effects table stands in for a downstream that knows no keys.
        first_requested_at: ``at`` of the first request that may have been performed: from then on the key's lifetime
            counts; None without ``key_ttl_ms``.
    """

    step: int
    tool: str
    tool_call_id: str
    arguments: Payload
    idempotency_key: str
    attempt: int
    why: Why
    recovery: Recovery
    timeout_ms: int
    approval_id: str | None
    sequential: bool = False
    key_ttl_ms: int | None = None
    settle_ms: int | None = None
    dedupe: bool = False
    first_requested_at: int | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned(RunEvent):
    """A tool call's result, from whichever source.

    Attributes:
        result: JSON: what is recorded.
        for_model: JSON: what the model sees, where that differs.
        patch: JSON object: state changes, applied in the order of the calls when the turn closes.
        resolved_by: The person who settled it (source ``operator`` or ``denied``).
    """

    step: int
    tool_call_id: str
    attempt: int
    source: Source
    outcome: Outcome
    result: Payload
    for_model: Payload | None = None
    patch: Payload | None = None
    resolved_by: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the model is told of a failure."""
        return self.outcome is not Outcome.SUCCESS


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StatePatched(RunEvent):
    """One key of the author's state was set; ``step`` is the tool call that asked for it.

    ``remaining`` counts the changes of the same closing turn that are still to come.
    """

    step: int
    key: str
    value: Payload
    remaining: int = 0


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(RunEvent):
    """The run opened a wait.

    Attributes:
        detail: JSON object for people.
        tool, tool_call_id, arguments, arguments_digest: For an approval, the call that it guards; for an
            indeterminate call, the call in doubt.
        expires_at: Milliseconds since 1970, or None.
        sequential: Of a gate: no other call of the turn is opened before the one that it guards has returned.
    """

    step: int
    wait_id: str
    reason: WaitReason
    detail: Payload
    tool: str | None = None
    tool_call_id: str | None = None
    arguments: Payload | None = None
    arguments_digest: str | None = None
    expires_at: int | None = None
    sequential: bool = False


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(RunEvent):
    """A wait was closed.

    Attributes:
        by: Who closed it (the approver, the operator); None when the runtime did.
        decision: ``approved`` or ``rejected`` for an approval; ``absent`` for an indeterminate call that never
            happened.
        accept_version: The operator accepts the running version.
    """

    step: int
    wait_id: str
    reason: WaitReason
    by: str | None = None
    decision: str | None = None
    comment: str | None = None
    accept_version: bool = False


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChanged(RunEvent):
    """The run goes on under another version: ``policy`` names what was decided for each part that differs.

    Attributes:
        patches: JSON object of state changes by a migration, or None.
        first_message: Stamped when the agent was unknown at the start.
    """

    old: Version
    new: Version
    policy: tuple[tuple[str, str], ...]
    patches: Payload | None = None
    first_message: Payload | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(RunEvent):
    """Nothing new is started; the run ends when its open calls have."""

    reason: str
    requested_by: str | None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted(RunEvent):
    """The end: ``output`` is JSON."""

    output: Payload


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(RunEvent):
    """The end, without an output."""

    error: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(RunEvent):
    """The end, at somebody's request: ``open_keys`` are idempotency keys whose outcome nobody knows."""

    reason: str
    open_keys: tuple[str, ...]


Event = (
    RunStarted
    | ModelCallRequested
    | ModelResponded
    | ModelCallFailed
    | ToolCallRequested
    | ToolReturned
    | StatePatched
    | Interrupted
    | Resumed
    | VersionChanged
    | CancelRequested
    | RunCompleted
    | RunFailed
    | RunCancelled
)
LogRecordBody = PartitionClaimed | InputSettled | Event
