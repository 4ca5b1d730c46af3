"""The pydantic models of the inputs, from which ``schemas/inputs/`` is generated. Used by ``codec.inputs`` alone."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from runfold.codec.input_types import (
    ApprovalInput,
    CancelInput,
    Input,
    ResolveInput,
    ResumeInput,
    StartInput,
    UnsupportedInput,
    VerdictInput,
)
from runfold.core.events import Outcome
from runfold.core.payload import canonical_json

Kind = Literal["requests", "approvals", "control"]

# Text that people see and Postgres stores, which knows no NUL.
Text = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$", description="Also the record's key.")]
Counter = Annotated[int, Field(ge=1, le=2**31 - 1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
TraceParent = Annotated[str, Field(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$")]


class AnyModel(BaseModel):
    """What all inputs share."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    written_to: ClassVar[Kind] = "requests"

    type: str
    run_id: RunId
    id: Name | None = Field(None, description="The same id twice for one run has one effect.")
    traceparent: TraceParent | None = Field(None, description="W3C trace context.")

    def plain(self) -> Input:
        """Give the plain data that the runtime works with."""
        return UnsupportedInput(run_id=self.run_id, id=self.id, traceparent=self.traceparent, type=self.type)


class RunStarted(AnyModel):
    """Start a run. A run_id is never used again."""

    type: Literal["run_started"]
    agent: Name = Field(description="Name of an agent of the app.")
    input: Any = Field(description="What the run is about: any JSON.")

    def plain(self) -> StartInput:
        """Give the plain data."""
        return StartInput(**_shared(self), agent=self.agent, input=canonical_json(self.input))


class Approval(AnyModel):
    """Decide an approval gate, once."""

    written_to = "approvals"

    type: Literal["approval"]
    approval_id: Name = Field(description="As in the notification: run_id:step of the gate.")
    decision: Literal["approved", "rejected"]
    approved_by: Name = Field(description="Who decided.")
    comment: Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")] | None = None
    arguments_digest: Sha256 | None = Field(None, description="If given, it must equal the gate's.")

    def plain(self) -> ApprovalInput:
        """Give the plain data."""
        return ApprovalInput(
            **_shared(self),
            approval_id=self.approval_id,
            decision=self.decision,
            approved_by=self.approved_by,
            comment=self.comment,
            arguments_digest=self.arguments_digest,
        )


class Signal(AnyModel):
    """Tell a run of something that happened. Not served yet."""

    type: Literal["signal"]
    name: Name
    data: Any = Field(None, description="Any JSON.")


class Message(AnyModel):
    """Say something to a run. Not served yet, so its other fields are not settled."""

    model_config = ConfigDict(extra="allow")

    type: Literal["message"]


class ToolResult(AnyModel):
    """Bring the result of a tool that works outside. Not served yet, so its other fields are not settled."""

    model_config = ConfigDict(extra="allow")

    type: Literal["tool_result"]


class Cancel(AnyModel):
    """End a run: nothing new is started, open calls are waited for."""

    type: Literal["cancel"]
    reason: Text
    requested_by: Name | None = None

    def plain(self) -> CancelInput:
        """Give the plain data."""
        return CancelInput(**_shared(self), reason=self.reason, requested_by=self.requested_by)


class Resume(AnyModel):
    """Let a run go on that an error or another version stopped."""

    type: Literal["resume"]
    requested_by: Name
    accept_version: bool = Field(default=False, description="The running code may go on with the run.")

    def plain(self) -> ResumeInput:
        """Give the plain data."""
        return ResumeInput(**_shared(self), requested_by=self.requested_by, accept_version=self.accept_version)


_NULL: dict[str, Any] = {"type": "null"}
_TEXT: dict[str, Any] = {"type": "string"}


class Resolve(AnyModel):
    """Say what became of a call whose outcome nobody knows."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"properties": {"outcome": {"const": "result"}, "error": _NULL}, "required": ["result"]},
                {"properties": {"outcome": {"const": "absent"}, "result": _NULL, "error": _NULL}},
                {"properties": {"outcome": {"const": "error"}, "result": _NULL, "error": _TEXT}, "required": ["error"]},
            ]
        }
    )

    type: Literal["resolve"]
    step: Counter
    attempt: Counter | None = Field(
        None, description="The attempt that was looked at, as the wait's detail names it; another one is not settled."
    )
    outcome: Literal["result", "absent", "error"] = Field(
        description="result: it happened (with result); absent: it never did, run it again; error (with error)."
    )
    result: Any = Field(None, description="Any JSON; only with outcome result, where it must be given.")
    error: Text | None = Field(None, description="Only with outcome error.")
    resolved_by: Name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_outcome(self, "result", "result")
        _check_outcome(self, "error", "error")
        return self

    def plain(self) -> ResolveInput:
        """Give the plain data."""
        return ResolveInput(
            **_shared(self),
            step=self.step,
            attempt=self.attempt,
            outcome=self.outcome,
            result=canonical_json(self.result) if self.outcome == "result" else None,
            error=self.error,
            resolved_by=self.resolved_by,
        )


_NOT_FOUND: dict[str, Any] = {"result": _NULL, "for_model": _NULL, "patch": _NULL}


class Verdict(AnyModel):
    """What the reconciler found out about one attempt. Only our own services write it."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"properties": {"outcome": {"const": "found"}, "error": _NULL}, "required": ["result"]},
                {"properties": {"outcome": {"const": "absent"}, **_NOT_FOUND, "error": _NULL}},
                {
                    "properties": {"outcome": {"const": "indeterminate"}, **_NOT_FOUND, "error": _TEXT},
                    "required": ["error"],
                },
            ]
        }
    )

    written_to = "control"

    type: Literal["verdict"]
    step: Counter
    attempt: Counter
    outcome: Literal["found", "absent", "indeterminate"]
    result: Any = Field(None, description="Any JSON; only with outcome found, where it must be given.")
    for_model: Any = Field(None, description="Any JSON: what the model sees, where that differs from result.")
    patch: dict[str, Any] | None = Field(None, description="State changes.")
    result_outcome: Literal["success", "failed", "retried", "denied"] = "success"
    error: Text | None = Field(None, description="Only with outcome indeterminate: why nobody knows.")
    verdict_by: Name

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_outcome(self, "found", "result")
        _check_outcome(self, "indeterminate", "error")
        for name in ("for_model", "patch"):
            if self.outcome != "found" and getattr(self, name) is not None:
                raise ValueError(f"field {name!r} does not go with outcome {self.outcome!r}")
        return self

    def plain(self) -> VerdictInput:
        """Give the plain data."""
        has_own = self.outcome == "found" and "for_model" in self.model_fields_set
        return VerdictInput(
            **_shared(self),
            step=self.step,
            attempt=self.attempt,
            outcome=self.outcome,
            result=canonical_json(self.result) if self.outcome == "found" else None,
            for_model=canonical_json(self.for_model) if has_own else None,
            patch=None if self.patch is None else canonical_json(self.patch),
            result_outcome=Outcome(self.result_outcome),
            error=self.error,
            verdict_by=self.verdict_by,
        )


MODELS: dict[str, type[AnyModel]] = {
    "run_started": RunStarted,
    "approval": Approval,
    "signal": Signal,
    "message": Message,
    "tool_result": ToolResult,
    "cancel": Cancel,
    "resume": Resume,
    "resolve": Resolve,
    "verdict": Verdict,
}


def _shared(model: AnyModel) -> dict[str, Any]:
    return {"run_id": model.run_id, "id": model.id, "traceparent": model.traceparent}


def _check_outcome(model: Resolve | Verdict, outcome: str, field: str) -> None:
    """``field`` is given with this outcome, and with no other. A result may be null, but must be said."""
    given = getattr(model, field) is not None
    if model.outcome != outcome and given:
        raise ValueError(f"field {field!r} does not go with outcome {model.outcome!r}")
    if model.outcome == outcome and not given and (field == "error" or field not in model.model_fields_set):
        raise ValueError(f"field {field!r} must be given with outcome {outcome!r}")
