"""The inputs as JSON: reading, and writing for clients. Imports pydantic; ``codec.input_types`` does not.

Reasons of a ``BadInput``: ``too_large``, ``not_json``, ``not_an_object``, ``unknown_type``, ``wrong_topic``,
``bad_run_id``, ``invalid``, ``wrong_key``; checked in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from runfold.codec.input_models import MODELS, AnyModel, Kind
from runfold.codec.input_types import BadInput, Input, VerdictInput
from runfold.codec.strict_json import BadJson, loads
from runfold.core.errors import InvalidRunId
from runfold.core.partitioning import check_run_id
from runfold.core.payload import canonical_json

KINDS: tuple[Kind, ...] = ("requests", "approvals", "control")
MAX_INPUT = 1 << 20
"""Bytes of an input's value."""


def parse_input(kind: Kind, key: bytes | None, value: bytes | None) -> Input:
    """Read an input.

    Args:
        kind: The topic it was written to; for a forwarded one the topic of its *origin*, since who may write
            approvals is decided there.
        key: The record's key, which must be the run_id.
        value: The record's value.

    Raises:
        BadInput: It belongs into ``dead``.
    """
    document = _read(value)
    run_id = _valid_run_id(document.get("run_id"))
    model = _model_for(kind, document, run_id)
    if run_id is None:
        raise BadInput("bad_run_id", "field 'run_id' must be text of 1 to 200 characters of [A-Za-z0-9._-]")
    try:
        parsed = model.model_validate(document).plain()
    except ValidationError as error:
        raise BadInput("invalid", _explain(error, model), run_id) from None
    if key != run_id.encode():
        shown = "missing" if key is None else repr(key[:200].decode(errors="backslashreplace"))
        raise BadInput("wrong_key", f"the record's key is {shown}; it must be the run_id {run_id!r}", run_id)
    return parsed


def kind_of(topic: str) -> Kind:
    """Give the kind of an input topic by its full name.

    Raises:
        ValueError: It is none of the three.
    """
    for kind in KINDS:
        if topic.endswith(kind):
            return kind
    raise ValueError(f"{topic!r} is no input topic: its name ends with none of {', '.join(KINDS)}")


def _read(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise BadInput("not_json", "the record has no value; it must be a JSON object")
    if len(value) > MAX_INPUT:
        raise BadInput("too_large", f"{len(value)} bytes, {MAX_INPUT} are allowed: send a reference instead")
    try:
        document = loads(value)
    except BadJson as error:
        raise BadInput("not_json", str(error)) from None
    if not isinstance(document, dict):
        raise BadInput("not_an_object", f"the value is a JSON {_json_type(document)}; it must be an object")
    return document


def _model_for(kind: Kind, document: dict[str, Any], run_id: str | None) -> type[AnyModel]:
    name = document.get("type")
    model = MODELS.get(name) if isinstance(name, str) else None
    if model is None:
        shown = repr(name)[:100] if "type" in document else "missing"
        raise BadInput("unknown_type", f"field 'type' is {shown}; known are {', '.join(MODELS)}", run_id)
    if model.written_to != kind:
        detail = f"type {name!r} belongs into topic {model.written_to}, not {kind}"
        raise BadInput("wrong_topic", detail, run_id)
    return model


def _valid_run_id(value: object) -> str | None:
    try:
        return check_run_id(value) if isinstance(value, str) else None
    except InvalidRunId:
        return None


def _explain(error: ValidationError, model: type[AnyModel]) -> str:
    """Name each field and the mend; never a value, which may be private."""
    parts = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[:5]:
        where = ".".join(str(part) for part in problem["loc"])[:200]
        if problem["type"] == "extra_forbidden":
            parts.append(f"unknown field {where!r}; known are {', '.join(model.model_fields)}")
        elif problem["type"] == "missing":
            parts.append(f"field {where!r} is missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            parts.append(f"field {where!r}: {message}" if where else message)
    return "; ".join(parts)


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


# --- writing ----------------------------------------------------------------------------------------------------


def encode_start(
    run_id: str,
    agent: str,
    input: Any,  # noqa: A002, ANN401 - the field's name; any JSON value
    *,
    id: str | None = None,  # noqa: A002 - the field's name
    traceparent: str | None = None,
) -> bytes:
    """Give the JSON of a ``run_started``; as all of these, raises ``BadInput`` for what would go to ``dead``."""
    return _encode("run_started", run_id, id, traceparent, {"agent": agent, "input": input})


def encode_approval(  # noqa: PLR0913 - one per field
    run_id: str,
    approval_id: str,
    decision: str,
    approved_by: str,
    comment: str | None = None,
    arguments_digest: str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the field's name
    traceparent: str | None = None,
) -> bytes:
    """Give the JSON of an ``approval``; ``decision`` is ``approved`` or ``rejected``."""
    fields = {"approval_id": approval_id, "decision": decision, "approved_by": approved_by}
    optional = _given(comment=comment, arguments_digest=arguments_digest)
    return _encode("approval", run_id, id, traceparent, fields | optional)


def encode_cancel(
    run_id: str,
    reason: str,
    requested_by: str | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the field's name
    traceparent: str | None = None,
) -> bytes:
    """Give the JSON of a ``cancel``."""
    return _encode("cancel", run_id, id, traceparent, {"reason": reason} | _given(requested_by=requested_by))


def encode_resume(
    run_id: str,
    requested_by: str,
    *,
    accept_version: bool = False,
    id: str | None = None,  # noqa: A002 - the field's name
    traceparent: str | None = None,
) -> bytes:
    """Give the JSON of a ``resume``."""
    fields = {"requested_by": requested_by, "accept_version": accept_version}
    return _encode("resume", run_id, id, traceparent, fields)


def encode_resolve(  # noqa: PLR0913 - one per field
    run_id: str,
    step: int,
    outcome: str,
    resolved_by: str,
    *,
    result: Any = None,  # noqa: ANN401 - any JSON value
    error: str | None = None,
    attempt: int | None = None,
    id: str | None = None,  # noqa: A002 - the field's name
    traceparent: str | None = None,
) -> bytes:
    """Give the JSON of a ``resolve``; ``result`` goes with outcome ``result``, ``error`` with outcome ``error``."""
    fields: dict[str, Any] = {"step": step, "outcome": outcome, "resolved_by": resolved_by}
    fields |= _given(error=error, attempt=attempt)
    if outcome == "result" or result is not None:
        fields["result"] = result
    return _encode("resolve", run_id, id, traceparent, fields)


def encode_verdict(verdict: VerdictInput) -> bytes:
    """Give the JSON of a verdict; ``parse_input`` gives the same verdict back."""
    fields: dict[str, Any] = {
        "step": verdict.step,
        "attempt": verdict.attempt,
        "outcome": verdict.outcome,
        "verdict_by": verdict.verdict_by,
        "error": verdict.error,
        "result_outcome": verdict.result_outcome.value,
    }
    texts = _given(result=verdict.result, for_model=verdict.for_model, patch=verdict.patch)
    for name, text in texts.items():
        try:
            fields[name] = loads(text)
        except BadJson as error:
            raise BadInput("not_json", f"field {name!r}: {error}", verdict.run_id) from None
    return _encode("verdict", verdict.run_id, verdict.id, verdict.traceparent, fields)


def _given(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON values
    return {name: value for name, value in fields.items() if value is not None}


def _encode(type_: str, run_id: str, id_: str | None, traceparent: str | None, fields: Mapping[str, Any]) -> bytes:
    """Write an input, and read it as its receiver will."""
    document = {"type": type_, "run_id": run_id, **_given(id=id_, traceparent=traceparent), **fields}
    try:
        data = canonical_json(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput("not_json", f"the fields of {type_} are not JSON: {error}", _valid_run_id(run_id)) from None
    parse_input(MODELS[type_].written_to, run_id.encode(), data)
    return data
