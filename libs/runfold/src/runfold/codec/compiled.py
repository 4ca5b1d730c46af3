"""Writes and reads records without datums in between, by Python source made once for each class and schema.

An annotation and a parsed schema are walked side by side and give straight-line code (``source``): a dataclass's
fields are read into local variables and put into a new instance, or written as the pieces of one ``join``; records
within records are inlined.

That code knows the usual case only: values of exactly their annotated types, bytes as it would write them itself. At
anything else (an ``int`` beyond 64 bits, an unknown enum member, a cut value, an array in two blocks) it gives up, and
fastavro and ``shapes`` are asked, which alone decide what is an error, and which. So nothing is accepted, refused or
written differently for being compiled: ``tests/unit/codec/test_compiled.py`` compares the two.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from typing import Any

from runfold.codec import shapes
from runfold.codec import source as code
from runfold.codec.avro import PREFIX_SIZE, Schema, records, short_name
from runfold.codec.source import Uncompilable, Unusual
from runfold.core.payload import Inline

# What the generated code, and what it calls, may raise at what is unusual.
_GIVEN_UP = (Unusual, ValueError, TypeError, LookupError, AttributeError)

Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], Any]


class Codec:
    """Writes and reads the values of one annotation in one version of a schema.

    Args:
        hint: The annotation: a record's dataclass.
        schema: The version.
        newest: The version whose defaults fill in what ``schema`` lacks.
        shape: The conversions of the general way.
    """

    def __init__(self, hint: Any, schema: Schema, newest: Schema, shape: shapes.Record) -> None:  # noqa: ANN401 - see Args
        self.schema = schema
        self._hint = hint
        self._newest = newest
        self._shape = shape

    def write(self, value: Any) -> bytes:  # noqa: ANN401 - of the annotation
        """Encode one value, prefix included.

        Raises:
            ValueError, TypeError, OverflowError: It is not of the schema: a defect of the caller.
        """
        try:
            return self._compiled[0](value)
        except _GIVEN_UP:
            pass
        return self.write_generally(value)

    def read(self, data: bytes) -> Any:  # noqa: ANN401 - of the annotation
        """Decode what begins with the schema's prefix.

        Raises:
            UnknownRecord: The bytes are not of the schema, or something follows them, or an enum member is unknown.
        """
        try:
            return self._compiled[1](data, PREFIX_SIZE)
        except _GIVEN_UP:
            pass
        return self.read_generally(data)

    def write_generally(self, value: Any) -> bytes:  # noqa: ANN401 - of the annotation
        """Encode as fastavro does."""
        return self.schema.write(self._shape.write(value))

    def read_generally(self, data: bytes) -> Any:  # noqa: ANN401 - of the annotation
        """Decode as fastavro does."""
        return self._shape.read(self.schema.read(data, None if self.schema is self._newest else self._newest))

    @cached_property
    def source(self) -> str | None:
        """The generated code; None where there is only the general way."""
        return self._compiled[2]

    @cached_property
    def _compiled(self) -> tuple[Write, Read, str | None]:
        try:
            out = self._generate()
        except Uncompilable:
            return _give_up, _give_up, None
        text = "\n".join(out.lines)
        exec(compile(text, f"<codec of {self.schema.name}>", "exec"), out.names)  # noqa: S102 - our own source
        return out.names["write"], out.names["read"], text

    def _generate(self) -> code.Source:
        node = _Planner(self.schema, self._newest).node(self._hint, self.schema.parsed)
        out = code.Source(PREFIX=self.schema.prefix)
        with out.block("def write(x):"):
            pieces = code.write_checked(node, out, "x")
            out(f"return join((PREFIX, {', '.join(pieces)}))")
        with out.block("def read(v, p):"):
            node.read(out, "x")
            # Less than a slice asked for is no error to it: a value that was cut ends behind its bytes.
            out("if p != len(v): raise Unusual")
            out("return x")
        return out


def _name(cls: Any) -> str:  # noqa: ANN401 - a class
    return str(cls.__name__)


def _give_up(*_: object) -> Any:  # noqa: ANN401 - it gives nothing
    raise Unusual


_PRIMITIVES: dict[tuple[Any, Any], code.Node] = {
    (int, "long"): code.Long(),
    (bool, "boolean"): code.Boolean(),
    (str, "string"): code.Text(),
    (bytes, "bytes"): code.Bytes(),
    (Inline, "bytes"): code.Record(Inline, {"data": code.Bytes()}, {}),
}


class _Planner:
    """Matches annotations with the types of one schema."""

    def __init__(self, schema: Schema, newest: Schema) -> None:
        self._named = {found["name"]: found for found in records(schema.parsed)}
        self._newest = {short_name(found): found["fields"] for found in records(newest.parsed)}

    def node(self, hint: Any, schema: Any) -> code.Node:  # noqa: ANN401, PLR0911 - a return per kind of value
        """Give what reads and writes one annotation's values.

        Raises:
            Uncompilable: Only fastavro can.
        """
        if isinstance(schema, list):
            return self._union(list(typing.get_args(hint)), schema)
        if isinstance(schema, str):
            if (hint, schema) in _PRIMITIVES:
                return _PRIMITIVES[hint, schema]
            if schema == "string" and isinstance(hint, type) and issubclass(hint, StrEnum):
                return code.Enum(hint)
            schema = self._named.get(schema)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        match schema:
            case {"type": "record"} if dataclasses.is_dataclass(hint) and _name(hint) == short_name(schema):
                return self._record(hint, schema["fields"])
            case {"type": "array"} if origin is list or (origin is tuple and arguments[1:] == (...,)):
                return code.Items(origin, self.node(arguments[0], schema["items"]))
            case {"type": "map"} if origin is tuple and typing.get_args(arguments[0])[:1] == (str,):
                return code.Items(tuple, self.node(typing.get_args(arguments[0])[1], schema["values"]), keyed=True)
            case {"type": "map"} if origin is dict and arguments[0] is str:
                return code.Items(dict, self.node(arguments[1], schema["values"]), keyed=True)
        raise Uncompilable(f"{hint!r} as {schema!r}")

    def _record(self, cls: Any, written: list[dict[str, Any]]) -> code.Record:  # noqa: ANN401 - a dataclass
        hints = typing.get_type_hints(cls)
        if hasattr(cls, "__post_init__"):
            raise Uncompilable(f"{cls.__name__} does more than fill its slots")
        if unknown := {field["name"] for field in written} - hints.keys():
            raise Uncompilable(f"{cls.__name__} has no {unknown}")
        fields = {field["name"]: self.node(hints[field["name"]], field["type"]) for field in written}
        lacking = {field.name: field.default for field in dataclasses.fields(cls) if field.name not in fields}
        defaults = {field["name"]: field["default"] for field in self._newest[cls.__name__] if "default" in field}
        for name, default in lacking.items():
            # fastavro fills in the newest schema's, the dataclass its own; repr, since False is not 0.
            if name not in defaults or repr(default) != repr(defaults[name]):
                raise Uncompilable(f"{cls.__name__}.{name} has no default that class and schema share")
        return code.Record(cls, fields, lacking)

    def _union(self, hints: list[Any], schema: list[Any]) -> code.Union:
        branches: list[code.Node | None] = []
        for alternative in schema:
            hint = next((hint for hint in hints if self._fits(hint, alternative)), None)
            if hint is None:
                raise Uncompilable(f"no {alternative!r} among {hints!r}")
            hints.remove(hint)
            branches.append(None if alternative == "null" else self.node(hint, alternative))
        if hints:
            raise Uncompilable(f"{hints!r} besides {schema!r}")
        return code.Union(branches)

    def _fits(self, hint: Any, schema: Any) -> bool:  # noqa: ANN401 - annotation and Avro
        if schema == "null":
            return hint is types.NoneType
        try:
            self.node(hint, schema)
        except Uncompilable:
            return False
        return True
