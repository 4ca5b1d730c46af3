"""Records of the log: what is written is read back, and what is not understood is never taken for something else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runfold_schemas
from golden_examples import examples, plain
from runfold.codec import log, shapes
from runfold.codec.avro import MARKER, PREFIX_SIZE, Schema
from runfold.core.errors import UnknownRecord
from runfold.core.events import Event, InputSettled, LogRecordBody, ModelCallFailed, PartitionClaimed, StatePatched
from runfold.core.fence import Head, Kind
from runfold.core.payload import BlobRef, Inline
from tests.unit.codec.values import instances

EXAMPLES = {log.type_name(type(record)): record for record in examples()}
RECORDS = st.sampled_from(sorted(log.RECORD_TYPES)).flatmap(lambda name: instances(log.RECORD_TYPES[name]))


def a_patch(**changes: Any) -> StatePatched:
    """Make a small event."""
    event = StatePatched(run_id="r", seq=3, epoch=2, at=1, step=1, key="k", value=Inline(b"1"))
    return dataclasses.replace(event, **changes)


def test_every_type_has_an_example() -> None:
    assert EXAMPLES.keys() == log.RECORD_TYPES.keys()


@settings(max_examples=300)
@given(RECORDS)
def test_what_is_written_is_read_back(record: LogRecordBody) -> None:
    """Field by field, a blob as a blob (payloads are equal by digest alone, so equality would not tell)."""
    _, value = log.encode(record)
    decoded = log.decode(value)
    assert type(decoded) is type(record)
    assert plain_bytes(decoded) == plain_bytes(record)


def plain_bytes(value: Any) -> Any:
    """Take a record apart, with payloads as they are stored."""
    if isinstance(value, Inline):
        return value.data
    if isinstance(value, BlobRef):
        return ("blob", value.sha256, value.size)
    if dataclasses.is_dataclass(value):
        return {field.name: plain_bytes(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [plain_bytes(item) for item in value] if isinstance(value, tuple) else (type(value), value)


@pytest.mark.parametrize("record", EXAMPLES.values(), ids=EXAMPLES)
def test_the_header_judges_what_the_body_says(record: LogRecordBody) -> None:
    """Kind, epoch and seq stand in the header; a claim has no epoch before it is appended."""
    head = Head.decode(log.encode(record)[0])
    log.check_head(head, record)
    log.check_key(log.key_of(record), record)
    match record:
        case PartitionClaimed():
            assert head == Head(Kind.CLAIM, -1, -1)
            assert log.key_of(record) is None
        case InputSettled():
            assert head == Head(Kind.SETTLED, record.epoch, -1)
            assert log.key_of(record) is None
        case _:
            event: Event = record
            assert head == Head(Kind.EVENT, event.epoch, event.seq)
            assert log.key_of(record) == "run-8c1"


@pytest.mark.parametrize(
    "head", [Head(Kind.EVENT, 2, 4), Head(Kind.EVENT, 1, 3), Head(Kind.SETTLED, 2, 3), Head(Kind.CLAIM)]
)
def test_a_header_that_says_something_else_is_unknown(head: Head) -> None:
    with pytest.raises(UnknownRecord, match="the header says"):
        log.check_head(head, a_patch())


@pytest.mark.parametrize("wrong", [2**63, -(2**63) - 1, None, "1", 1.0])
@pytest.mark.parametrize("field", ["epoch", "seq"])
def test_what_no_header_can_say_is_refused_as_documented(field: str, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        log.encode(a_patch(**{field: wrong}))


@pytest.mark.parametrize("key", [None, "", "another"])
def test_a_key_of_another_run_is_unknown(key: str | None) -> None:
    with pytest.raises(UnknownRecord, match="the key is"):
        log.check_key(key, a_patch())


def test_an_unknown_fingerprint_is_unknown() -> None:
    with pytest.raises(UnknownRecord, match="no schema of this code has fingerprint 0011223344556677"):
        log.decode(MARKER + bytes.fromhex("0011223344556677") + b"body")


@pytest.mark.parametrize("value", [b"", b"{}", MARKER, b'{"type": "run_started"}'])
def test_what_is_no_single_object_is_unknown(value: bytes) -> None:
    with pytest.raises(UnknownRecord, match="do not begin as"):
        log.decode(value)


@pytest.mark.parametrize("record", EXAMPLES.values(), ids=EXAMPLES)
def test_bytes_that_follow_are_unknown(record: LogRecordBody) -> None:
    with pytest.raises(UnknownRecord, match="1 bytes follow"):
        log.decode(log.encode(record)[1] + b"\0")


@pytest.mark.parametrize("record", EXAMPLES.values(), ids=EXAMPLES)
def test_a_value_cut_anywhere_is_unknown(record: LogRecordBody) -> None:
    value = log.encode(record)[1]
    for length in range(len(value)):
        with pytest.raises(UnknownRecord):
            log.decode(value[:length])


@settings(max_examples=500)
@given(st.sampled_from(sorted(EXAMPLES)), st.binary(max_size=200))
def test_garbage_is_unknown_or_a_record_and_never_a_crash(name: str, body: bytes) -> None:
    """Whatever follows a known fingerprint."""
    try:
        record = log.decode(log.schemas()[name][-1].prefix + body)
    except UnknownRecord:
        return
    assert log.type_name(type(record)) == name


@settings(max_examples=500)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_a_flipped_byte_is_unknown_or_a_record_and_never_a_crash(name: str, data: st.DataObject) -> None:
    value = bytearray(log.encode(EXAMPLES[name])[1])
    at = data.draw(st.integers(PREFIX_SIZE, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(UnknownRecord):
        log.decode(bytes(value))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("tool_returned", "source"),
        ("tool_returned", "outcome"),
        ("interrupted", "reason"),
        ("input_settled", "outcome"),
    ],
)
def test_an_unknown_member_is_unknown_never_a_default(name: str, field: str) -> None:
    """A newer writer may know more outcomes; an older reader must not take one for another."""
    schema = log.schemas()[name][-1]
    datum = shapes.record(log.RECORD_TYPES[name]).write(EXAMPLES[name])
    with pytest.raises(UnknownRecord, match="'from_the_future' is no"):
        log.decode(schema.write(datum | {field: "from_the_future"}))


def test_an_older_version_is_read_as_the_newest() -> None:
    """A field that a version adds has its default for what was written before."""
    path = next(path for path in runfold_schemas.log_schemas() if path.name == "state_patched.v1.avsc")
    source = json.loads(path.read_text(encoding="utf-8"))
    source["fields"].append({"name": "added", "type": "string", "default": "none"})
    old, new = Schema.load(path), Schema("state_patched.v2", json.dumps(source))
    assert old.fingerprint != new.fingerprint
    assert old.read(log.encode(a_patch())[1], new)["added"] == "none"


def test_a_forgotten_field_is_refused_where_the_schema_is_loaded() -> None:
    """Fastavro would drop it in silence."""

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Grown(ModelCallFailed):
        """An event with a field that its schema lacks."""

        forgotten: int = 0

    Grown.__name__ = "ModelCallFailed"
    with pytest.raises(ValueError, match=r"must have the fields .*forgotten"):
        shapes.check_fields(Grown, log.schemas()["model_call_failed"][-1].parsed)


def test_plain_shows_every_field() -> None:
    """The golden files leave nothing out."""
    for record in EXAMPLES.values():
        assert plain(record).keys() == {field.name for field in dataclasses.fields(record)}
