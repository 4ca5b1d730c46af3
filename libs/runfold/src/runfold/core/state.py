"""What one run is: folded from its valid events by ``transitions.fold``, and from nothing else.

A state is changed in place by the fold, and only by it; everybody else reads (and may move on what ``Turn`` remembers).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter

from runfold.core.events import AskedCall, Recovery, Version, WaitReason, Why
from runfold.core.payload import Payload
from runfold.core.quick import quick

TRANSCRIPT_SEED = hashlib.sha256(b"runfold.transcript.1").digest()


class Status(StrEnum):
    """What a person is told a run does. ``waiting``: nothing open, nothing decidable."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """Where one tool call of the open turn stands.

    asked -> [gated -> approved | rejected ->] requested -> returned; a requested call whose outcome nobody knows
    goes to in_doubt, and from there to returned or, when it is known never to have happened, to absent.
    """

    ASKED = "asked"
    GATED = "gated"
    APPROVED = "approved"
    REJECTED = "rejected"
    REQUESTED = "requested"
    IN_DOUBT = "in_doubt"
    ABSENT = "absent"
    RETURNED = "returned"


class EntryKind(StrEnum):
    """What a transcript entry is."""

    USER = "user"
    RESPONSE = "response"
    TOOL = "tool"


@quick
@dataclass(frozen=True, slots=True)
class Entry:
    """One element of the transcript, from which the model's messages are built.

    Attributes:
        seq: The event that brought it.
        tool_call_id, tool, outcome: For a tool result.
        message_format: Of a response.
        payload: user: a JSON string; response: the message bytes; tool: JSON as the model sees it.
    """

    kind: EntryKind
    seq: int
    payload: Payload
    tool_call_id: str = ""
    tool: str = ""
    outcome: str = ""
    message_format: str = ""

    def chain(self, previous: bytes) -> bytes:
        """Hash the transcript up to and including this entry: sha256(previous || sha256(entry)).

        ``seq`` stays out: the messages are the same in whatever order a turn's calls have returned.
        """
        parts = (self.kind, self.tool_call_id, self.tool, self.outcome, self.message_format, self.payload.digest)
        return hashlib.sha256(previous + hashlib.sha256("\0".join(parts).encode()).digest()).digest()


# Python 3.11 takes four times as long to look a member up in its enum: felt where a turn has many calls.
ASKED, RETURNED, FIRST = Phase.ASKED, Phase.RETURNED, Why.FIRST


@dataclass(slots=True)
class ModelCall:
    """The model call of the current step.

    Attributes:
        attempt: The last attempt requested.
        epoch: Epoch of its request.
        is_open: Requested, and neither answered nor failed.
        failures: Failed attempts since the last resume.
        lost: Performed attempts lost to crashes since the last resume.
        retry_at: Milliseconds since 1970; None after a failure: not retried, the run has to be interrupted.
        error: Of the last failure.
    """

    step: int
    attempt: int
    epoch: int
    is_open: bool = True
    failures: int = 0
    lost: int = 0
    retry_at: int | None = None
    error: str | None = None


@dataclass(slots=True)
class Call:
    """One tool call of the open turn.

    Attributes:
        asked: The model's own arguments; ``arguments``: validated ones, once known.
        step: Its step, allotted when it is opened (its gate's step + 1 if it is gated).
        sequential: While it has not returned, no other call of the turn is opened.
        attempt: The last attempt requested, 0 before the first; ``epoch``: of that request.
        retries, absents: Attempts by why: ``retry``; ``absent``.
        lost: Attempts because the one before was lost to a crash: ``takeover``, and ``absent`` of a lost owner's call.
        remark: What the person said who refused it.
        entry, patch: The result for the transcript and the state changes, held until the turn closes.
        key_ttl_ms, settle_ms, dedupe, first_requested_at: As the last request says.
        requested_at: The last request's time; unset without ``first_requested_at``, which goes with ``key_ttl_ms``.
    """

    asked: AskedCall
    phase: Phase = Phase.ASKED
    step: int = 0
    approval_id: str | None = None
    sequential: bool = False
    arguments: Payload | None = None
    recovery: Recovery | None = None
    timeout_ms: int = 0
    attempt: int = 0
    epoch: int = -1
    retries: int = 0
    lost: int = 0
    absents: int = 0
    entry: Entry | None = None
    patch: Payload | None = None
    remark: str | None = None
    key_ttl_ms: int | None = None
    settle_ms: int | None = None
    dedupe: bool = False
    first_requested_at: int | None = None
    requested_at: int | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the effects table is asked what became of it."""
        return self.recovery is Recovery.TRANSACTIONAL or self.dedupe

    def count(self, why: Why, *, is_foreign: bool = False) -> None:
        """Count one more attempt by its reason; ``is_foreign``: the one before was a lost owner's."""
        if why is FIRST:
            return
        self.retries += why is Why.RETRY
        self.lost += why is Why.TAKEOVER or (why is Why.ABSENT and is_foreign)
        self.absents += why is Why.ABSENT and not is_foreign


class Turn(list[Call]):
    """The tool calls of the last completion, in its order, while any of them has not returned.

    As a list it never changes. The fold opens them in this order, at ascending steps, and takes back neither an opening
    nor a return. So two bounds only ever rise, and what lies behind them is not looked through again for each of many.
    """

    __slots__ = ("_by_id", "_opened", "_returned")

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        super().__init__(calls)
        self._by_id = {call.asked.tool_call_id: call for call in self}
        self._returned = self._opened = 0

    def unopened(self) -> tuple[Call, ...]:
        """List the calls that were only asked for: they are the last ones."""
        return tuple(self[self._first_unopened() :])

    def first_unopened(self) -> Call | None:
        """Give the call that is to be opened next; None: all are opened."""
        first = self._first_unopened()
        return self[first] if first < len(self) else None

    def unreturned(self) -> list[Call]:
        """List the opened calls that have not returned."""
        opened = self[self._first_unreturned() : self._first_unopened()]
        return [call for call in opened if call.phase is not RETURNED]

    @property
    def is_complete(self) -> bool:
        """Whether every call has returned."""
        return self._first_unreturned() == len(self)

    def at(self, step: int) -> Call | None:
        """Find the opened call that holds ``step``."""
        opened = self._first_unopened()
        index = bisect_left(self, step, hi=opened, key=_STEP)
        return self[index] if index < opened and self[index].step == step else None

    def of(self, tool_call_id: str) -> Call | None:
        """Find the call with the model's own id."""
        return self._by_id.get(tool_call_id)

    def _first_unopened(self) -> int:
        index, count = self._opened, len(self)
        while index < count and self[index].phase is not ASKED:
            index += 1
        self._opened = index
        return index

    def _first_unreturned(self) -> int:
        index, count = self._returned, len(self)
        while index < count and self[index].phase is RETURNED:
            index += 1
        self._returned = index
        return index


_STEP = attrgetter("step")


@quick
@dataclass(frozen=True, slots=True)
class Wait:
    """Something the run waits for, until a ``resumed`` names ``wait_id``; opened by event ``seq``."""

    wait_id: str
    step: int
    seq: int
    reason: WaitReason
    detail: Payload
    tool: str | None = None
    tool_call_id: str | None = None
    arguments: Payload | None = None
    arguments_digest: str | None = None
    expires_at: int | None = None


@dataclass(slots=True)
class State:
    """One run.

    Attributes:
        seq: Of the last event; ``step``: the last one allotted.
        epoch: Of the last event's writer; ``at``: its time, milliseconds since 1970.
        transcript: Append-only; ``messages_hash``: its chain (32 bytes).
        turn: Tool calls of the last completion, while any of them has not returned.
        due_patches: (step, JSON object) of a closed turn, not yet applied; ``applied_patches``: how many keys are.
        values: The author's state, by key.
        used_approvals: wait_id -> (decision, by) of every closed approval.
        seen_ids: Explicit ids of inputs that had an effect.
        accept_version: An operator's resume said that the running version is fine; holds until the run is driven again.
        usage: Token totals by name; ``cost_nano_usd``: total of the priced calls; ``unpriced_calls``: the others;
            ``unaccounted_calls``: requests whose completion was never seen, so whose spend is unknown.
        used_tools: Tools that were called in this run (for the ``compatible`` policy of the version gate).
    """

    run_id: str
    agent: str
    input: Payload
    version: Version
    started_at: int
    seq: int = 0
    step: int = 0
    epoch: int = -1
    at: int = 0
    ended: Status | None = None
    transcript: list[Entry] = field(default_factory=list)
    messages_hash: bytes = TRANSCRIPT_SEED
    model_call: ModelCall | None = None
    turn: Turn = field(default_factory=Turn)
    due_patches: list[tuple[int, Payload]] = field(default_factory=list)
    applied_patches: int = 0
    values: dict[str, Payload] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    used_approvals: dict[str, tuple[str, str]] = field(default_factory=dict)
    seen_ids: set[str] = field(default_factory=set)
    used_tools: set[str] = field(default_factory=set)
    cancel_reason: str | None = None
    accept_version: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    cost_nano_usd: int = 0
    unpriced_calls: int = 0
    unaccounted_calls: int = 0
    output: Payload | None = None
    error: str | None = None
    open_keys: tuple[str, ...] = ()

    @property
    def has_first_message(self) -> bool:
        """Whether the transcript has begun: false only while the agent has never been known."""
        return bool(self.transcript)

    @property
    def known_cost(self) -> int | None:
        """What the priced calls cost together, nano-dollars; None where only calls without a price were made."""
        return None if self.cost_nano_usd == 0 and self.unpriced_calls > 0 else self.cost_nano_usd

    def call_at(self, step: int) -> Call | None:
        """Find the call of the open turn that holds ``step``, if any."""
        return self.turn.at(step)

    @property
    def has_open_request(self) -> bool:
        """Whether a request has no outcome yet, or is in doubt (its outcome may have survived)."""
        model = self.model_call
        return (model is not None and model.is_open) or any(call.phase in _OPEN for call in self.turn.unreturned())

    def is_open(self, step: int, attempt: int) -> bool:
        """Whether the outcome of this very attempt would still be taken."""
        if self.ended is not None:
            return False
        model = self.model_call
        if model is not None and model.step == step:
            return model.is_open and model.attempt == attempt
        call = self.call_at(step)
        return call is not None and call.attempt == attempt and call.phase in _OPEN

    def key(self, step: int) -> str:
        """Give the idempotency key of a step, and the id of its wait."""
        return f"{self.run_id}:{step}"

    @property
    def last_step(self) -> int:
        """The last step that an event has: behind an open gate, the guarded call's own step is allotted already."""
        is_reserved = any(call.step == self.step and call.phase in _STEP_RESERVED for call in self.turn.unreturned())
        return self.step - 1 if is_reserved else self.step

    def operational_wait(self) -> Wait | None:
        """Find the wait that stops the whole run (an error, a version, an unknown agent, a budget), if one is open."""
        for wait in self.waits.values():
            if wait.reason in OPERATIONAL:
                return wait
        return None

    def open_calls(self) -> list[Call]:
        """List the calls that were requested and have no known outcome yet."""
        return [call for call in self.turn.unreturned() if call.phase is Phase.REQUESTED]


_OPEN = frozenset({Phase.REQUESTED, Phase.IN_DOUBT})
_STEP_RESERVED = frozenset({Phase.GATED, Phase.APPROVED, Phase.REJECTED})
OPERATIONAL = frozenset(
    {WaitReason.VERSION_MISMATCH, WaitReason.UNKNOWN_AGENT, WaitReason.ERROR, WaitReason.BUDGET_EXCEEDED}
)
