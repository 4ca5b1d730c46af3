"""What an input asks for, as plain data: what the runtime works with. ``codec.inputs`` reads it from JSON.

``id`` is the input's explicit id, or None: then its topic, partition and offset (a forwarded one: its origin) are its
id. JSON values are canonical JSON bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runfold.core.events import Outcome


class BadInput(Exception):
    """An input that cannot be accepted: it goes to ``dead``.

    Attributes:
        reason: For machines: see ``codec.inputs``.
        detail: For a person: what is wrong, in which field, and how to mend it.
        run_id: The run that it names, if that much could be read.
    """

    def __init__(self, reason: str, detail: str, run_id: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.run_id = run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyInput:
    """What all inputs share."""

    run_id: str
    id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInput(AnyInput):
    """Start a run: ``input`` is canonical JSON."""

    agent: str
    input: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalInput(AnyInput):
    """Decide a gate; ``arguments_digest``, if given, must be the gate's."""

    approval_id: str
    decision: Literal["approved", "rejected"]
    approved_by: str
    comment: str | None = None
    arguments_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelInput(AnyInput):
    """End a run."""

    reason: str
    requested_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeInput(AnyInput):
    """Lift an operational wait; ``accept_version``: the running code may go on with the run."""

    requested_by: str
    accept_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveInput(AnyInput):
    """Say what became of an indeterminate call: ``result`` with JSON, ``absent``, or ``error`` with a text.

    ``attempt``: the one that the person looked at, if they say so.
    """

    step: int
    outcome: Literal["result", "absent", "error"]
    resolved_by: str
    attempt: int | None = None
    result: bytes | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictInput(AnyInput):
    """What the reconciler found out about one attempt of a call.

    Attributes:
        result, for_model, patch: Of a found one: JSON; as in ``tool_returned``.
        result_outcome: Of a found one: how the call ended.
        error: Of an indeterminate one: why nobody knows.
        verdict_by: Which process says so.
    """

    step: int
    attempt: int
    outcome: Literal["found", "absent", "indeterminate"]
    verdict_by: str
    result: bytes | None = None
    for_model: bytes | None = None
    patch: bytes | None = None
    result_outcome: Outcome = Outcome.SUCCESS
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedInput(AnyInput):
    """A well-formed input of a type that this version does not serve; ``type`` names it."""

    type: str


Input = StartInput | ApprovalInput | CancelInput | ResumeInput | ResolveInput | VerdictInput | UnsupportedInput
