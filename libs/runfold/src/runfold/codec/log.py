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
from runfold.codec.compiled import Codec
from runfold.codec.oldest import Oldest
from runfold.core.errors import UnknownRecord
from runfold.core.events import InputSettled, LogRecordBody, PartitionClaimed
from runfold.core.fence import Head, Kind, encode_head

_FILE = re.compile(r"(?P<type>[a-z_]+)\.v(?P<version>[0-9]+)\.avsc")
_CLAIM, _SETTLED, _EVENT = Kind.CLAIM, Kind.SETTLED, Kind.EVENT


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
    codec = writer.newest if writer.oldest is None else writer.codecs[writer.oldest.of(record)]
    # The value first: its complaint names the field.
    value = codec.write(record)
    return encode_head(*_head(record)), value


def decode(value: bytes) -> LogRecordBody:
    """Read a value.

    Raises:
        UnknownRecord: No schema, or no enum member, of this code; malformed bytes; bytes that follow.
    """
    codec = _readers().get(value[:PREFIX_SIZE])
    if codec is None:
        raise unknown_prefix(value)
    body: LogRecordBody = codec.read(value)
    return body


def key_of(record: LogRecordBody) -> str | None:
    """The record's key: the run; None for a record of the partition."""
    # Two questions: to make a union costs more than to ask both.
    if isinstance(record, PartitionClaimed) or isinstance(record, InputSettled):  # noqa: SIM101
        return None
    return record.run_id


def head_of(record: LogRecordBody) -> Head:
    """The header that belongs to a record."""
    return Head(*_head(record))


def _head(record: LogRecordBody) -> tuple[Kind, int, int]:
    """Kind, epoch and seq of the header that belongs to a record."""
    if isinstance(record, PartitionClaimed):
        return _CLAIM, -1, -1
    if isinstance(record, InputSettled):
        return _SETTLED, record.epoch, -1
    return _EVENT, record.epoch, record.seq


def check_head(head: Head, record: LogRecordBody) -> None:
    """Check that header and body say the same.

    Raises:
        UnknownRecord: They do not: nobody can say what the writer meant.
    """
    if head != _head(record):
        expected = head_of(record)
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
    """``oldest``: chooses where there is more than one version."""

    codecs: dict[Schema, Codec]
    newest: Codec
    oldest: Oldest | None


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
def codecs() -> dict[str, dict[Schema, Codec]]:
    """The codec of every version of every record type, oldest first."""
    return {name: _codecs(RECORD_TYPES[name], known) for name, known in schemas().items()}


def _codecs(cls: type[Any], known: list[Schema]) -> dict[Schema, Codec]:
    shape = shapes.record(cls)
    return {schema: Codec(cls, schema, known[-1], shape) for schema in known}


@cache
def _writers() -> dict[type[Any], _Writer]:
    return {RECORD_TYPES[name]: _writer(RECORD_TYPES[name], known) for name, known in codecs().items()}


def _writer(cls: type[Any], known: dict[Schema, Codec]) -> _Writer:
    versions = list(known)
    return _Writer(known, known[versions[-1]], Oldest(cls, versions) if len(versions) > 1 else None)


@cache
def _readers() -> dict[bytes, Codec]:
    return {schema.prefix: codec for known in codecs().values() for schema, codec in known.items()}
