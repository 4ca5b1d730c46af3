"""Records of the log: a header to judge them by, and an Avro value.

One schema file per type and version, ``schemas/log/<type>.v<n>.avsc``; every version is read, resolved to the newest.
The oldest version that can say all of a record writes it, so that services of the release before can read whatever
uses nothing new. What this code does not know raises ``UnknownRecord``; it is never skipped here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import runfold_schemas
from runfold.codec import shapes
from runfold.codec.avro import PREFIX_SIZE, Schema, unknown_prefix
from runfold.codec.oldest import Oldest
from runfold.core.errors import UnknownRecord
from runfold.core.events import InputSettled, LogRecordBody, PartitionClaimed
from runfold.core.fence import Head, Kind

_FILE = re.compile(r"(?P<type>[a-z_]+)\.v(?P<version>[0-9]+)\.avsc")
_CLAIM_HEAD = Head(Kind.CLAIM)


def type_name(cls: type) -> str:
    """The name that a record type has in schema files and in JSON: ``RunStarted`` -> ``run_started``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


RECORD_TYPES: dict[str, type] = {type_name(cls): cls for cls in get_args(LogRecordBody)}


def encode(record: LogRecordBody) -> tuple[bytes, bytes]:
    """Give the bytes of header ``rf`` and the value.

    Raises:
        ValueError, TypeError, OverflowError: A field holds what its annotation forbids: a defect of the caller.
    """
    writer = _writers()[type(record)]
    schema = writer.newest if writer.older is None else writer.older.of(record)
    return head_of(record).encode(), schema.write(writer.to_datum(record))


def decode(value: bytes) -> LogRecordBody:
    """Read a value.

    Raises:
        UnknownRecord: No schema, or no enum member, of this code; malformed bytes; bytes that follow.
    """
    reader = _readers().get(value[:PREFIX_SIZE])
    if reader is None:
        raise unknown_prefix(value)
    body: LogRecordBody = reader.from_datum(reader.schema.read(value, reader.newest))
    return body


def key_of(record: LogRecordBody) -> str | None:
    """The record's key: the run; None for a record of the partition."""
    return None if isinstance(record, PartitionClaimed | InputSettled) else record.run_id


def head_of(record: LogRecordBody) -> Head:
    """The header that belongs to a record."""
    if isinstance(record, PartitionClaimed):
        return _CLAIM_HEAD
    if isinstance(record, InputSettled):
        return Head(Kind.SETTLED, record.epoch)
    return Head(Kind.EVENT, record.epoch, record.seq)


def check_head(head: Head, record: LogRecordBody) -> None:
    """Check that header and body say the same.

    Raises:
        UnknownRecord: They do not: nobody can say what the writer meant.
    """
    expected = head_of(record)
    if head != expected:
        raise UnknownRecord(f"the header says {head}, the body of {type_name(type(record))} says {expected}")


def check_key(key: str | None, record: LogRecordBody) -> None:
    """Check that the record's key names the run that its body names.

    Raises:
        UnknownRecord: It does not: validity was judged by the key, so the body must not be believed.
    """
    expected = key_of(record)
    if key != expected:
        raise UnknownRecord(f"the key is {key!r}, the body of {type_name(type(record))} says {expected!r}")


@dataclass(frozen=True, slots=True)
class _Writer:
    """``older``: chooses where there is more than one version."""

    newest: Schema
    older: Oldest | None
    to_datum: shapes.Convert


@dataclass(frozen=True, slots=True)
class _Reader:
    """``newest``: the version to resolve to; None where ``schema`` is the newest itself."""

    schema: Schema
    newest: Schema | None
    from_datum: shapes.Convert


@cache
def schemas() -> dict[str, list[Schema]]:
    """Every version of every record type, oldest first.

    Raises:
        ValueError: A schema file has a name, or fields, that this code does not know.
    """
    versions: dict[str, dict[int, Schema]] = {name: {} for name in RECORD_TYPES}
    for path in runfold_schemas.log_schemas():
        match = _FILE.fullmatch(path.name)
        if match is None or match["type"] not in versions:
            raise ValueError(f"{path} is not <type>.v<version>.avsc of a record type of this code")
        versions[match["type"]][int(match["version"])] = Schema.load(path)
    by_type = {name: [known[number] for number in sorted(known)] for name, known in versions.items()}
    for name, known in by_type.items():
        if not known:
            raise ValueError(f"{name} has no schema file")
        shapes.check_fields(RECORD_TYPES[name], known[-1].parsed)
    return by_type


@cache
def _shapes() -> dict[str, shapes.Record]:
    return {name: shapes.record(cls) for name, cls in RECORD_TYPES.items()}


@cache
def _writers() -> dict[type[Any], _Writer]:
    return {RECORD_TYPES[name]: _writer(name, known) for name, known in schemas().items()}


def _writer(name: str, known: list[Schema]) -> _Writer:
    older = Oldest(RECORD_TYPES[name], known) if len(known) > 1 else None
    return _Writer(known[-1], older, _shapes()[name].write)


@cache
def _readers() -> dict[bytes, _Reader]:
    return {
        schema.prefix: _Reader(schema, None if schema is known[-1] else known[-1], _shapes()[name].read)
        for name, known in schemas().items()
        for schema in known
    }
