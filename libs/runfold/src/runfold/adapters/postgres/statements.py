"""SQL out of named files, with the name of the schema put in as a quoted identifier."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from psycopg import sql

from runfold.adapters.postgres.errors import StoreMisconfigured

_PACKAGE = files("runfold.adapters.postgres")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables' history.

    Attributes:
        version: Its number, from 1 without a hole.
        name: Its file's name without the suffix.
        checksum: sha256 of the file, in hex: a released migration is never edited.
        text: The SQL, ``{schema}`` not yet put in.
    """

    version: int
    name: str
    checksum: str
    text: str


def check_schema(schema: str) -> str:
    """Give back a name that can be a schema.

    Raises:
        StoreMisconfigured: Otherwise; the message says what is allowed.
    """
    if not _SCHEMA.fullmatch(schema):
        raise StoreMisconfigured(
            f"schema {schema!r} is not a name of 1 to 63 letters, digits and underscores that begins with a letter"
        )
    return schema


def fill(text: str, schema: str) -> bytes:
    """Put the schema's name into a statement."""
    return sql.SQL(text).format(schema=sql.Identifier(schema)).as_bytes()


def load_statements(schema: str) -> dict[str, bytes]:
    """All statements of ``queries/``, by the name of their file without the suffix."""
    found = sorted(_PACKAGE.joinpath("queries").iterdir(), key=lambda entry: entry.name)
    return {
        entry.name.removesuffix(".sql"): fill(entry.read_text("utf-8"), schema)
        for entry in found
        if entry.name.endswith(".sql")
    }


def load_migrations() -> list[Migration]:
    """All migrations that this code knows, oldest first."""
    known = []
    for entry in sorted(_PACKAGE.joinpath("migrations").iterdir(), key=lambda entry: entry.name):
        matched = _MIGRATION.fullmatch(entry.name)
        if matched is not None:
            text = entry.read_text("utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            known.append(Migration(int(matched[1]), entry.name.removesuffix(".sql"), checksum, text))
    return known
