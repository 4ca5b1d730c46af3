"""Between the core's dataclasses and Avro datums, derived once from the dataclasses' own annotations.

| annotation                | datum                                          |
|---------------------------|------------------------------------------------|
| str, int, bool, bytes     | itself                                         |
| StrEnum                   | string; an unknown one is an ``UnknownRecord`` |
| Payload                   | bytes, or the record BlobRef                   |
| dataclass                 | record of the same field names                 |
| tuple[X, ...], list[X]    | array; so a class that is a list[X]            |
| set[str]                  | array, sorted                                  |
| dict[str, X]              | map                                            |
| tuple[tuple[str, X], ...] | map, in the order of the pairs                 |

``X | None`` is a union with null everywhere.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any

from runfold.codec.avro import records, short_name
from runfold.core.errors import UnknownRecord
from runfold.core.payload import BlobRef, Inline, Payload

Convert = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The two conversions; None where a value is its own datum. Neither is called with None."""

    write: Convert | None = None
    read: Convert | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The two conversions between a dataclass's instance and a dictionary, which ``read`` uses up."""

    write: Convert
    read: Convert


AS_IS = Shape()


def write_payload(payload: Payload) -> object:
    """Give the datum of a payload: bytes where it is inline."""
    return payload.data if type(payload) is Inline else {"sha256": payload.digest, "size": payload.size}


def read_payload(datum: Any) -> Payload:  # noqa: ANN401 - bytes or the record
    """Give the payload of a datum."""
    return Inline(datum) if type(datum) is bytes else BlobRef(datum["sha256"], datum["size"])


PAYLOAD = Shape(write_payload, read_payload)


def record(cls: type[Any], special: Mapping[str, Shape] | None = None, skip: frozenset[str] = frozenset()) -> Record:
    """Shape a dataclass of at least two fields.

    Args:
        cls: The dataclass.
        special: Shapes of fields whose annotation does not say enough.
        skip: Fields that have no place in the record, and a default.

    Raises:
        TypeError: A field's annotation is none of the table's.
    """
    hints = typing.get_type_hints(cls)
    names = tuple(field.name for field in dataclasses.fields(cls) if field.name not in skip)
    shapes = {name: (special or {}).get(name) or of(hints[name]) for name in names}
    writes = tuple((name, shape.write) for name, shape in shapes.items() if shape.write is not None)
    reads = tuple((name, shape.read) for name, shape in shapes.items() if shape.read is not None)
    values = attrgetter(*names)

    def write(instance: object) -> dict[str, Any]:
        body = dict(zip(names, values(instance), strict=True))
        for name, convert in writes:
            if (value := body[name]) is not None:
                body[name] = convert(value)
        return body

    def read(body: dict[str, Any]) -> object:
        for name, convert in reads:
            if (value := body[name]) is not None:
                body[name] = convert(value)
        return cls(**body)

    return Record(write, read)


@cache
def of(hint: Any) -> Shape:  # noqa: ANN401, PLR0911 - a type annotation; one return per line of the table
    """Shape what an annotation says.

    Raises:
        TypeError: It is none of the table's.
    """
    if hint in (str, int, bool, bytes):
        return AS_IS
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _optional(frozenset(arguments) - {type(None)})
    if origin is tuple and typing.get_origin(arguments[0]) is tuple:
        return _pairs(typing.get_args(arguments[0]))
    if origin in (tuple, list):
        return _array(origin, of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, list):
        return _array(hint, of(_items(hint)))
    if hint == set[str]:
        return Shape(sorted, set)
    if origin is dict and arguments[0] is str:
        return _map(of(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _nested(hint)
    raise TypeError(f"no Avro shape for the annotation {hint!r}")


def check_fields(cls: type[Any], schema: Any, skip: frozenset[str] = frozenset()) -> None:  # noqa: ANN401 - Avro
    """Check that a schema has every field of a dataclass and of those inside it, in the same order.

    fastavro drops a field that its schema lacks in silence; so this is asked where a schema is loaded.

    Raises:
        ValueError: A record's fields differ from the dataclass's.
    """
    written = {short_name(found): [field["name"] for field in found["fields"]] for found in records(schema)}
    for inner in _dataclasses(cls):
        expected = [field.name for field in dataclasses.fields(inner) if inner is not cls or field.name not in skip]
        if written.get(inner.__name__) != expected:
            raise ValueError(f"the newest schema of {inner.__name__} must have the fields {', '.join(expected)}")


def _dataclasses(hint: Any) -> Iterator[type[Any]]:  # noqa: ANN401 - a type annotation
    """Every dataclass that an annotation reaches, but for an inline payload, which is bytes."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint is not Inline:
            yield hint
            for inner in typing.get_type_hints(hint).values():
                yield from _dataclasses(inner)
    elif isinstance(hint, type) and issubclass(hint, list):
        yield from _dataclasses(_items(hint))
    else:
        for inner in typing.get_args(hint):
            yield from _dataclasses(inner)


def _items(cls: type[list[Any]]) -> Any:  # noqa: ANN401 - a type annotation
    """What a class that is a list of something holds."""
    (base,) = vars(cls)["__orig_bases__"]
    return typing.get_args(base)[0]


def _nested(cls: type[Any]) -> Shape:
    nested = record(cls)
    return Shape(nested.write, nested.read)


def _optional(alternatives: frozenset[Any]) -> Shape:
    if alternatives == {Inline, BlobRef}:
        return PAYLOAD
    if len(alternatives) == 1:
        return of(next(iter(alternatives)))
    raise TypeError(f"no Avro shape for a choice of {alternatives!r}")


def _pairs(pair: tuple[Any, ...]) -> Shape:
    if pair not in ((str, str), (str, int)):
        raise TypeError(f"no Avro shape for pairs of {pair!r}")
    return Shape(dict, lambda datum: tuple(datum.items()))


def _array(container: Convert, item: Shape) -> Shape:
    write, read = item.write, item.read
    return Shape(
        list if write is None else lambda values: [write(value) for value in values],
        container if read is None else lambda datum: container([read(value) for value in datum]),
    )


def _map(value: Shape) -> Shape:
    write, read = value.write, value.read
    return Shape(
        dict if write is None else lambda values: {key: write(value) for key, value in values.items()},
        dict if read is None else lambda datum: {key: read(value) for key, value in datum.items()},
    )


def _enum(cls: type[StrEnum]) -> Shape:
    members = {member.value: member for member in cls}

    def read(datum: str) -> StrEnum:
        try:
            return members[datum]
        except KeyError:
            raise UnknownRecord(f"{datum!r} is no {cls.__name__} that this code knows") from None

    return Shape(None, read)
