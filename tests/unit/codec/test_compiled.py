"""Compiled codecs say exactly what fastavro says: byte for byte, value for value, error for error."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_examples import examples
from runfold.codec import log, shapes, snapshots
from runfold.codec.avro import PREFIX_SIZE, Schema
from runfold.codec.compiled import Codec
from runfold.codec.source import Unusual
from runfold.core.errors import UnknownRecord
from runfold.core.events import Cause, LogRecordBody, PartitionClaimed, ToolCallRequested, Why
from runfold.core.payload import BlobRef, Inline
from runfold.core.state import Entry
from tests.unit.codec.values import instances
from tests.unit.core.building import Run

CODECS = {schema.name: codec for known in log.codecs().values() for schema, codec in known.items()}
CLASSES = {schema.name: log.RECORD_TYPES[name] for name, known in log.codecs().items() for schema in known}
NAMES = sorted(CODECS)
EXAMPLES: dict[str, Any] = {log.type_name(type(record)): record for record in examples()}
DRAWN = st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), instances(CLASSES[name])))
_RAISED = (ValueError, TypeError, OverflowError, AttributeError, KeyError)
_text: Any = "text"  # where mypy would see that something else is due
_real: Any = 1.0
_ODD: list[Any] = [
    *(None, True, False, 0, 1.0, 1.5, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64),
    *("", "text", "half a pair \ud800", "call", b"", b"bytes", bytearray(b"array"), memoryview(b"view")),
    *((), ("one",), [1], {}, {"a": "b"}, ((1, 2),), (("a", 1), ("a", 2)), (("a", True),), {"set"}, object()),
    *(Why.FIRST, Cause("t", 0, True), Cause("t", 2**63, 0), Cause(_real, 0, 0), Cause("t", 0, 0, "i")),
    *(Inline(b"x"), Inline(_text), BlobRef("s", 1), BlobRef("s", _real), BlobRef("s", 2**63), BlobRef("\udfff", 1)),
]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, field by field, or what it raises."""
    try:
        return taken_apart(function(*arguments))
    except (*_RAISED, UnknownRecord) as error:
        return type(error), str(error)


def taken_apart(value: Any) -> Any:
    """Show types and fields: payloads are equal by digest alone, and True is 1."""
    if dataclasses.is_dataclass(value):
        return type(value), [taken_apart(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return type(value), [taken_apart(item) for item in value]
    return type(value), value


@pytest.mark.parametrize("name", NAMES)
def test_every_version_of_every_record_is_compiled(name: str) -> None:
    """None is read or written the slow way unnoticed; and the examples really take the fast one."""
    codec = CODECS[name]
    assert codec.source is not None
    write, read, _ = codec._compiled
    example = EXAMPLES[name.partition(".")[0]]
    assert taken_apart(read(write(example), PREFIX_SIZE)) == taken_apart(codec.read_generally(write(example)))


@settings(max_examples=250)
@given(DRAWN)
def test_bytes_and_values_are_fastavros(drawn: tuple[str, LogRecordBody]) -> None:
    """Random instances, without the general way's help; an older version drops what it does not know."""
    name, record = drawn
    codec = CODECS[name]
    write, read, _ = codec._compiled
    value = write(record)
    assert value == codec.write_generally(record)
    assert taken_apart(read(value, PREFIX_SIZE)) == taken_apart(codec.read_generally(value))


@settings(max_examples=100)
@given(st.lists(instances(Entry), min_size=1, max_size=4))
def test_chunks_of_a_transcript_are_fastavros(entries: list[Entry]) -> None:
    codec = snapshots._entries_codec()
    assert codec.source is not None
    write, read, _ = codec._compiled
    value = write(entries)
    assert value == codec.write_generally(entries)
    assert taken_apart(read(value, PREFIX_SIZE)) == taken_apart(codec.read_generally(value)) == taken_apart(entries)
    assert outcome(codec.read, value[:-2]) == outcome(codec.read_generally, value[:-2])


def test_a_folded_transcript_takes_the_fast_way() -> None:
    """A string enum's member equals a text, and is none to the compiled code."""
    run = Run()
    run.turn("look", "book")
    run.do(run.next.refuse("look"))
    run.do(run.next.request("book"))
    run.do(run.next.result("book"))
    transcript = run.state.transcript
    assert [entry.outcome for entry in transcript] == ["", "", "retried", "success"]
    write, _, _ = snapshots._entries_codec()._compiled
    assert write(transcript) == snapshots._entries_codec().write_generally(transcript)


@settings(max_examples=400)
@given(DRAWN, st.data())
def test_damaged_bytes_are_what_fastavro_says(drawn: tuple[str, LogRecordBody], data: st.DataObject) -> None:
    """Changed, cut, and made longer: the same value, or the same complaint."""
    name, record = drawn
    codec = CODECS[name]
    value = bytearray(codec.write(record))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(PREFIX_SIZE, len(value)))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change" if at < len(value):
                value[at] = data.draw(st.integers(0, 255))
            case "cut":
                del value[at : at + data.draw(st.integers(1, 8))]
            case _:
                value[at:at] = data.draw(st.binary(max_size=11))
    damaged = bytes(value)
    assert outcome(codec.read, damaged) == outcome(codec.read_generally, damaged)


@settings(max_examples=400)
@given(st.sampled_from(NAMES), st.binary(max_size=120))
def test_garbage_is_what_fastavro_says(name: str, body: bytes) -> None:
    codec = CODECS[name]
    assert outcome(codec.read, codec.schema.prefix + body) == outcome(codec.read_generally, codec.schema.prefix + body)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_field_is_what_fastavro_says(name: str) -> None:
    """Every field of every record with every odd value: the same bytes, or the same error; so nothing new slips in."""
    codec, example = CODECS[name], EXAMPLES[name.partition(".")[0]]
    for field in dataclasses.fields(example):
        for odd in _ODD:
            record = dataclasses.replace(example, **{field.name: odd})
            assert outcome(codec.write, record) == outcome(codec.write_generally, record), (field.name, odd)


@settings(max_examples=250)
@given(DRAWN, st.data())
def test_a_wrong_field_within_is_what_fastavro_says(drawn: tuple[str, Any], data: st.DataObject) -> None:
    """Items of tuples, halves of pairs, fields of inner records."""
    name, record = drawn
    odd = data.draw(st.sampled_from(_ODD))
    field = data.draw(st.sampled_from([field.name for field in dataclasses.fields(record)]))
    value = getattr(record, field)
    if isinstance(value, tuple):
        value = data.draw(st.sampled_from([(odd,), (*value, odd), ((odd, odd),), (("a", odd),), ((odd, "a"),)]))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = data.draw(st.sampled_from([field.name for field in dataclasses.fields(value)]))
        value = dataclasses.replace(value, **{inner: odd})
    else:
        value = odd
    record = dataclasses.replace(record, **{field: value})
    codec = CODECS[name]
    assert outcome(codec.write, record) == outcome(codec.write_generally, record)


@pytest.mark.parametrize("number", [0, 63, 64, -64, -65, 8191, 8192, 2**34, -(2**34), 2**62, 2**63 - 1, -(2**63)])
def test_numbers_of_every_length(number: int) -> None:
    """One byte to ten."""
    codec = CODECS["partition_claimed.v1"]
    write, read, _ = codec._compiled
    value = write(PartitionClaimed(owner="o", revision="r", nonce="n", at=number))
    assert value == codec.write_generally(read(value, PREFIX_SIZE))


@pytest.mark.parametrize(
    "tail",
    [b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\xff" * 1_000_000, b"\x80" * 9],
    ids=["a bit too many", "a byte too many", "a megabyte", "cut"],
)
def test_a_number_beyond_64_bits_is_left_to_fastavro(tail: bytes) -> None:
    codec = CODECS["partition_claimed.v1"]
    value = codec.schema.prefix + b"\x00" * 3 + tail
    with pytest.raises((Unusual, IndexError)):
        codec._compiled[1](value, PREFIX_SIZE)
    assert outcome(codec.read, value) == outcome(codec.read_generally, value)


@pytest.mark.parametrize("length", [63, 64, 8191, 8192, 1_100_000])
def test_lengths_of_every_size(length: int) -> None:
    record = dataclasses.replace(EXAMPLES["run_completed"], output=Inline(b"x" * length))
    codec = CODECS["run_completed.v1"]
    write, read, _ = codec._compiled
    assert write(record) == codec.write_generally(record)
    assert read(write(record), PREFIX_SIZE).output.data == b"x" * length


def test_what_is_read_is_as_frozen_as_what_is_made() -> None:
    """Its slots are filled through a class that is open; nothing of that is left."""
    for record in EXAMPLES.values():
        read = log.decode(log.encode(record)[1])
        assert type(read) is type(record)
        assert repr(read) == repr(record)
        for field in dataclasses.fields(read):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(read, field.name, None)


def test_memory_of_numbers_is_bounded() -> None:
    """Times and offsets never end."""
    codec = CODECS["partition_claimed.v1"]
    write, read, _ = codec._compiled
    for at in range(1_767_323_045_000, 1_767_323_055_000):
        assert read(write(PartitionClaimed(owner="o", revision="r", nonce="n", at=at)), PREFIX_SIZE).at == at
    assert len(write.__globals__["LONG"]) <= 4096


def _changed(name: str, change: Callable[[dict[str, Any]], None]) -> Codec:
    """A codec of ToolCallRequested for a schema that differs from its newest."""
    newest = log.schemas()["tool_call_requested"][-1]
    source = json.loads(json.dumps(newest.parsed))
    for private in ("__fastavro_parsed", "__named_schemas"):
        source.pop(private)
    change(source)
    return Codec(ToolCallRequested, Schema(name, json.dumps(source)), newest, shapes.record(ToolCallRequested))


def _without(source: dict[str, Any], name: str) -> None:
    source["fields"] = [field for field in source["fields"] if field["name"] != name]


def _retyped(source: dict[str, Any], name: str, avro: Any) -> None:
    [field] = [field for field in source["fields"] if field["name"] == name]
    field.pop("default", None)
    field["type"] = avro


@pytest.mark.parametrize(
    ("change", "is_compiled"),
    [
        (lambda source: _without(source, "dedupe"), True),
        (lambda source: source["fields"].insert(0, source["fields"].pop(3)), True),
        (lambda source: source["fields"].append({"name": "gone", "type": "string", "default": ""}), False),
        (lambda source: _retyped(source, "timeout_ms", "int"), False),
        (lambda source: _retyped(source, "approval_id", ["string", "null"]), True),
        (lambda source: _retyped(source, "approval_id", "string"), False),
    ],
    ids=["lacks a field", "another order", "a field too many", "a narrower number", "null is last", "no union"],
)
def test_an_older_schema_is_compiled_or_left_to_fastavro(
    change: Callable[[dict[str, Any]], None],
    is_compiled: bool,  # noqa: FBT001 - from the table above
) -> None:
    """Either way it is read as fastavro reads it."""
    codec = _changed("tool_call_requested.v0", change)
    record = dataclasses.replace(EXAMPLES["tool_call_requested"], dedupe=False, approval_id="a")
    assert (codec.source is not None) is is_compiled
    value = codec.schema.write(shapes.record(ToolCallRequested).write(record) | {"gone": ""})
    assert taken_apart(codec.read(value)) == taken_apart(codec.read_generally(value))
