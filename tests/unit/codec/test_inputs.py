"""Inputs: the contract's examples are understood, everything else gets a reason and a detail that names the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import runfold_schemas
from runfold.codec import inputs
from runfold.codec.input_models import MODELS, Kind
from runfold.codec.input_types import (
    ApprovalInput,
    BadInput,
    CancelInput,
    Input,
    ResolveInput,
    ResumeInput,
    StartInput,
    UnsupportedInput,
    VerdictInput,
)
from runfold.codec.inputs import MAX_INPUT, kind_of, parse_input
from runfold.core.events import Outcome
from runfold.core.payload import canonical_json

RUN = "run-8c1"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def read(document: dict[str, Any], kind: Kind | None = None) -> Input:
    """Read a document as it would stand in its topic."""
    model = MODELS.get(str(document.get("type")))
    written_to: Kind = "requests" if model is None else model.written_to
    run_id = document.get("run_id")
    key = run_id.encode() if isinstance(run_id, str) else b"k"
    return parse_input(kind or written_to, key, json.dumps(document).encode())


def refused(document: dict[str, Any], kind: Kind | None = None) -> BadInput:
    """Give the refusal of a document."""
    with pytest.raises(BadInput) as caught:
        read(document, kind)
    return caught.value


START: dict[str, Any] = {"type": "run_started", "run_id": RUN, "agent": "research", "input": {"question": "…"}}
APPROVAL: dict[str, Any] = {
    "type": "approval",
    "run_id": RUN,
    "approval_id": "run-8c1:19",
    "decision": "approved",
    "approved_by": "dana@example.com",
    "comment": "fine",
}
CANCEL: dict[str, Any] = {"type": "cancel", "run_id": RUN, "reason": "no longer needed", "requested_by": "ops"}
RESUME: dict[str, Any] = {"type": "resume", "run_id": RUN, "requested_by": "ops", "accept_version": True}
RESOLVE: dict[str, Any] = {"type": "resolve", "run_id": RUN, "step": 24, "outcome": "result", "result": {"id": "T-7"}}
RESOLVE |= {"resolved_by": "ops"}
VERDICT: dict[str, Any] = {
    "type": "verdict",
    "run_id": RUN,
    "step": 24,
    "attempt": 1,
    "outcome": "found",
    "result": None,
}
VERDICT |= {"verdict_by": "reconciler-1"}
SIGNAL: dict[str, Any] = {"type": "signal", "run_id": RUN, "name": "invoice_paid", "data": {"amount": 12}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    document["type"]: document for document in (START, APPROVAL, CANCEL, RESUME, RESOLVE, VERDICT, SIGNAL)
}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (START, StartInput(run_id=RUN, agent="research", input=canonical_json({"question": "…"}))),
        (
            APPROVAL,
            ApprovalInput(
                run_id=RUN,
                approval_id="run-8c1:19",
                decision="approved",
                approved_by="dana@example.com",
                comment="fine",
            ),
        ),
        (CANCEL, CancelInput(run_id=RUN, reason="no longer needed", requested_by="ops")),
        (RESUME, ResumeInput(run_id=RUN, requested_by="ops", accept_version=True)),
        (RESOLVE, ResolveInput(run_id=RUN, step=24, outcome="result", resolved_by="ops", result=b'{"id":"T-7"}')),
        (
            VERDICT,
            VerdictInput(run_id=RUN, step=24, attempt=1, outcome="found", verdict_by="reconciler-1", result=b"null"),
        ),
        (SIGNAL, UnsupportedInput(run_id=RUN, type="signal")),
        ({"type": "message", "run_id": RUN, "text": "hello"}, UnsupportedInput(run_id=RUN, type="message")),
        ({"type": "tool_result", "run_id": RUN, "x": 1}, UnsupportedInput(run_id=RUN, type="tool_result")),
    ],
)
def test_the_contracts_examples_are_understood(document: dict[str, Any], expected: Input) -> None:
    assert read(document) == expected


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_input_may_carry_an_id_and_a_trace(document: dict[str, Any]) -> None:
    parsed = read(document | {"id": "once", "traceparent": TRACE})
    assert (parsed.id, parsed.traceparent) == ("once", TRACE)


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_an_unknown_field_is_named(document: dict[str, Any]) -> None:
    """A typo must not be ignored in silence."""
    error = refused(document | {"requested_bye": "x"})
    assert (error.reason, error.run_id) == ("invalid", RUN)
    assert "unknown field 'requested_bye'; known are type, run_id, id" in error.detail


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name, document in DOCUMENTS.items()
        for field in document
        if field in MODELS[name].model_json_schema()["required"] and field not in ("type", "run_id")
    ],
)
def test_a_missing_field_is_named(name: str, field: str) -> None:
    document = {key: value for key, value in DOCUMENTS[name].items() if key != field}
    error = refused(document)
    assert (error.reason, error.run_id) == ("invalid", RUN)
    assert f"field {field!r} is missing" in error.detail


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (START | {"agent": 7}, "agent"),
        (START | {"agent": ""}, "agent"),
        (START | {"agent": "a\0b"}, "agent"),
        (START | {"agent": "a" * 201}, "agent"),
        (START | {"id": ""}, "id"),
        (START | {"traceparent": "yes"}, "traceparent"),
        (APPROVAL | {"decision": "maybe"}, "decision"),
        (APPROVAL | {"decision": True}, "decision"),
        (APPROVAL | {"arguments_digest": "ABC"}, "arguments_digest"),
        (APPROVAL | {"arguments": {}}, "arguments"),
        (RESUME | {"accept_version": "yes"}, "accept_version"),
        (RESUME | {"accept_version": 1}, "accept_version"),
        (RESOLVE | {"step": "24"}, "step"),
        (RESOLVE | {"step": True}, "step"),
        (RESOLVE | {"step": 24.0}, "step"),
        (RESOLVE | {"step": 0}, "step"),
        (RESOLVE | {"step": 10**30}, "step"),
        (RESOLVE | {"error": "x"}, "error"),
        (RESOLVE | {"outcome": "absent"}, "result"),
        (RESOLVE | {"outcome": "error", "result": None}, "error"),
        ({key: value for key, value in RESOLVE.items() if key != "result"}, "result"),
        ({key: value for key, value in VERDICT.items() if key != "result"}, "result"),
        (VERDICT | {"outcome": "absent", "patch": {}}, "patch"),
        (VERDICT | {"outcome": "absent", "for_model": 1}, "for_model"),
        (VERDICT | {"outcome": "indeterminate"}, "error"),
        (VERDICT | {"patch": [1]}, "patch"),
        (VERDICT | {"result_outcome": "fine"}, "result_outcome"),
        (VERDICT | {"attempt": 0}, "attempt"),
    ],
)
def test_a_bad_field_is_named(document: dict[str, Any], field: str) -> None:
    error = refused(document)
    assert (error.reason, error.run_id) == ("invalid", RUN)
    assert f"field {field!r}" in error.detail


@pytest.mark.parametrize("run_id", [None, 7, "", "a b", "a\n", "a/b", "~", "a" * 201, "ü", "..\0"])
def test_a_run_id_outside_the_contract_is_refused(run_id: object) -> None:
    error = refused(CANCEL | {"run_id": run_id})
    assert (error.reason, error.run_id) == ("bad_run_id", None)


@pytest.mark.parametrize("type_", [None, 7, "", "run_start", "Approval", ["approval"], {}])
def test_an_unknown_type_is_refused_with_those_that_are_known(type_: object) -> None:
    error = refused({"run_id": RUN} if type_ is None else {"type": type_, "run_id": RUN}, "requests")
    assert (error.reason, error.run_id) == ("unknown_type", RUN)
    assert "known are run_started, approval" in error.detail


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (APPROVAL, "requests"),
        (APPROVAL, "control"),
        (VERDICT, "requests"),
        (VERDICT, "approvals"),
        (START, "approvals"),
        (RESOLVE, "control"),
    ],
)
def test_who_may_write_a_topic_may_only_say_what_belongs_there(document: dict[str, Any], kind: Kind) -> None:
    """The topics' ACLs are the boundary: an approval in ``requests`` is none."""
    error = refused(document, kind)
    assert (error.reason, error.run_id) == ("wrong_topic", RUN)


@pytest.mark.parametrize("key", [None, b"", b"another", b"\xff\xfe", RUN.encode() + b"\n"])
def test_the_key_must_be_the_run_id(key: bytes | None) -> None:
    with pytest.raises(BadInput, match=r"wrong_key: the record's key is .*; it must be the run_id 'run-8c1'"):
        parse_input("requests", key, json.dumps(CANCEL).encode())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not_json"),
        (b"", "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"type": "cancel", "type": "cancel"}', "not_json"),
        (b'{"type": NaN}', "not_json"),
        (b"[]", "not_an_object"),
        (b'"x"', "not_an_object"),
        (b"null", "not_an_object"),
        (b"1", "not_an_object"),
        (b"{}" + b" " * MAX_INPUT, "too_large"),
    ],
)
def test_what_is_no_json_object_is_refused(value: bytes | None, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_input("requests", RUN.encode(), value)
    assert (caught.value.reason, caught.value.run_id) == (reason, None)


SOMETHING: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        24,
        1.5,
        "",
        "x",
        "a\0b",
        "result",
        "absent",
        "error",
        "found",
        "indeterminate",
        [],
        {},
        "ü" * 300,
    ]
)


@settings(max_examples=600)
@given(st.sampled_from(sorted(DOCUMENTS)), st.data())
def test_the_json_schemas_say_the_same_as_the_parser(name: str, data: st.DataObject) -> None:
    """A foreign producer that validates with the schema is never surprised, and none is kept out."""
    names = st.sampled_from([*MODELS[name].model_fields, "extra"])
    changes = data.draw(st.dictionaries(names, SOMETHING, max_size=3))
    dropped = data.draw(st.sets(names, max_size=1))
    document = {key: value for key, value in (DOCUMENTS[name] | changes).items() if key not in dropped}
    schema = next(path for path in runfold_schemas.input_schemas() if path.stem == name)
    allowed = Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).is_valid(document)
    try:
        read(document, MODELS[name].written_to)
        accepted = True
    except BadInput:
        accepted = False
    assert accepted == allowed, document


@settings(max_examples=300)
@given(
    st.sampled_from(["requests", "approvals", "control"]), st.binary(max_size=80), st.binary(max_size=20) | st.none()
)
def test_any_bytes_are_an_input_or_a_refusal(kind: Kind, value: bytes, key: bytes | None) -> None:
    with pytest.raises(BadInput):
        parse_input(kind, key, value)


VERDICTS = [
    VerdictInput(run_id=RUN, step=1, attempt=2, outcome="found", verdict_by="r", result=b'{"a":[1,null]}'),
    VerdictInput(
        run_id=RUN,
        step=1,
        attempt=2,
        outcome="found",
        verdict_by="r",
        result=b"null",
        for_model=b"null",
        patch=b'{"k":1}',
        result_outcome=Outcome.FAILED,
        id="once",
        traceparent=TRACE,
    ),
    VerdictInput(run_id=RUN, step=1, attempt=2, outcome="absent", verdict_by="r"),
    VerdictInput(run_id=RUN, step=1, attempt=2, outcome="indeterminate", verdict_by="r", error="nobody knows"),
]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_verdict_comes_back(verdict: VerdictInput) -> None:
    """A null for the model is something else than nothing for the model."""
    assert parse_input("control", RUN.encode(), inputs.encode_verdict(verdict)) == verdict


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (inputs.encode_start(RUN, "a", None), "requests", StartInput(run_id=RUN, agent="a", input=b"null")),
        (
            inputs.encode_approval(RUN, "w", "rejected", "dana", None, "0" * 64, id="x"),
            "approvals",
            ApprovalInput(
                run_id=RUN,
                approval_id="w",
                decision="rejected",
                approved_by="dana",
                arguments_digest="0" * 64,
                id="x",
            ),
        ),
        (inputs.encode_cancel(RUN, "why"), "requests", CancelInput(run_id=RUN, reason="why")),
        (inputs.encode_resume(RUN, "ops"), "requests", ResumeInput(run_id=RUN, requested_by="ops")),
        (
            inputs.encode_resolve(RUN, 24, "result", "ops", result=None, traceparent=TRACE),
            "requests",
            ResolveInput(run_id=RUN, step=24, outcome="result", resolved_by="ops", result=b"null", traceparent=TRACE),
        ),
        (
            inputs.encode_resolve(RUN, 24, "absent", "ops"),
            "requests",
            ResolveInput(run_id=RUN, step=24, outcome="absent", resolved_by="ops"),
        ),
        (
            inputs.encode_resolve(RUN, 24, "error", "ops", error="gone"),
            "requests",
            ResolveInput(run_id=RUN, step=24, outcome="error", resolved_by="ops", error="gone"),
        ),
    ],
)
def test_what_a_client_writes_is_read_as_meant(data: bytes, kind: Kind, expected: Input) -> None:
    assert parse_input(kind, RUN.encode(), data) == expected


@pytest.mark.parametrize(
    "write",
    [
        lambda: inputs.encode_start("a b", "a", 1),
        lambda: inputs.encode_start(RUN, "", 1),
        lambda: inputs.encode_start(RUN, "a", float("nan")),
        lambda: inputs.encode_start(RUN, "a", {1, 2}),
        lambda: inputs.encode_start(RUN, "a", "x" * MAX_INPUT),
        lambda: inputs.encode_start(RUN, "a", "\ud800"),
        lambda: inputs.encode_approval(RUN, "w", "maybe", "dana"),
        lambda: inputs.encode_resolve(RUN, 24, "absent", "ops", result=1),
        lambda: inputs.encode_verdict(
            VerdictInput(run_id=RUN, step=1, attempt=1, outcome="found", verdict_by="r", result=b"{")
        ),
    ],
)
def test_a_client_is_told_before_anything_is_sent(write: Callable[[], bytes]) -> None:
    with pytest.raises(BadInput):
        write()


def test_the_kind_of_a_topic_is_its_suffix() -> None:
    """Whatever the prefix; a forwarded input is judged by its origin's."""
    assert [kind_of(f"x.{kind}") for kind in ("requests", "approvals", "control")] == list(inputs.KINDS)
    with pytest.raises(ValueError, match=r"'x\.log' is no input topic"):
        kind_of("x.log")
