"""Avro single-object encoding: two marker bytes, the fingerprint of the schema that wrote, the body.

Source: Avro specification 1.12, "Single-object encoding". The fingerprint is CRC-64-AVRO of the schema's parsing
canonical form, in little-endian order, so that docs and defaults may be mended without changing it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from runfold.core.errors import UnknownRecord

MARKER = b"\xc3\x01"
PREFIX_SIZE = len(MARKER) + 8

# What fastavro raises on bytes that another schema wrote, or nobody.
_MALFORMED = (EOFError, ValueError, TypeError, LookupError, OverflowError, MemoryError, struct.error)


class Schema:
    """One schema file, parsed once.

    Attributes:
        name: For messages: the file's name without its ending.
        fingerprint: 16 hex digits, in the order in which the bytes are written.
        prefix: The ten bytes that every value begins with.
        parsed: As fastavro wants it; private to this package.
    """

    __slots__ = ("fingerprint", "name", "parsed", "prefix")

    def __init__(self, name: str, source: str) -> None:
        schema = json.loads(source)
        self.name = name
        self.fingerprint = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
        self.prefix = MARKER + bytes.fromhex(self.fingerprint)
        self.parsed: Any = parse_schema(schema, named_schemas={})

    @classmethod
    def load(cls, path: Path) -> Schema:
        """Read a file ``<name>.v<version>.avsc``."""
        return cls(path.name.removesuffix(".avsc"), path.read_text(encoding="utf-8"))

    def fields(self, record: str | None = None) -> frozenset[str]:
        """Names of the fields of the record, or of the one of that name (without namespace) inside it.

        Raises:
            KeyError: There is none.
        """
        for found in records(self.parsed):
            if record in (None, short_name(found)):
                return frozenset(field["name"] for field in found["fields"])
        raise KeyError(record)

    def write(self, datum: Any) -> bytes:  # noqa: ANN401 - an Avro datum of this schema
        """Encode one datum.

        Raises:
            ValueError, TypeError, OverflowError: It is not of this schema: a defect of the caller.
        """
        out = BytesIO()
        out.write(self.prefix)
        schemaless_writer(out, self.parsed, datum)
        return out.getvalue()

    def read(self, value: bytes, reader: Schema | None = None) -> Any:  # noqa: ANN401 - an Avro datum
        """Decode one value that begins with ``prefix``, resolved to ``reader`` where that is another version.

        Raises:
            UnknownRecord: The bytes are not of this schema, or something follows them.
        """
        source = BytesIO(value)
        source.seek(PREFIX_SIZE)
        try:
            datum = schemaless_reader(source, self.parsed, None if reader is None else reader.parsed)
        except _MALFORMED as error:
            raise UnknownRecord(f"{len(value)} bytes are not of schema {self.name}: {error!r}") from error
        if source.tell() != len(value):
            raise UnknownRecord(f"{len(value) - source.tell()} bytes follow a value of schema {self.name}")
        return datum


def records(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - Avro
    """Every record of a parsed schema, from the outermost inwards, in the order of the fields."""
    if isinstance(schema, list):
        for part in schema:
            yield from records(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "record":
            yield schema
        for inside in ("type", "fields", "items", "values"):
            yield from records(schema.get(inside))


def short_name(record: dict[str, Any]) -> str:
    """Give a record's name without its namespace."""
    return str(record["name"].rpartition(".")[2])


def unknown_prefix(value: bytes) -> UnknownRecord:
    """Say that no schema of this code wrote these bytes."""
    if value[:2] != MARKER or len(value) < PREFIX_SIZE:
        return UnknownRecord(f"{len(value)} bytes do not begin as Avro single-object encoding does: {value[:10]!r}")
    return UnknownRecord(f"no schema of this code has fingerprint {value[2:PREFIX_SIZE].hex()}: a newer writer?")
