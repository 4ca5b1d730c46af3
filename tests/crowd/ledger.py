"""The table that the crowd's TRANSACTIONAL tool writes into, in the installation's own schema.

It has no unique key: a second effect would be a second row.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from demo.installation import Installation
from demo.world import Posted, World
from tests.crowd.names import COLLECTIONS, TRANSACTIONAL

TABLE: Final = "ledger"
INSERT: Final = sql.SQL(
    "insert into {} (key, attempt, pid, title) values (%s, %s, %s, %s) returning key, title, number"
)
_CREATE: Final = sql.SQL(
    "create table {} (number bigserial, key text not null, attempt integer not null, pid integer not null, "
    "title text not null, written_at timestamptz not null default clock_timestamp())"
)
_ROWS: Final = sql.SQL(
    "select number, key, attempt, pid, title, (extract(epoch from written_at) * 1000)::bigint as at_ms from {} "
    "order by number"
)


def create(installation: Installation) -> None:
    """Make the table; it goes with the schema."""
    with _connected(installation) as connection:
        connection.execute(_CREATE.format(_table(installation)))


def find(installation: Installation, key: str) -> list[dict[str, Any]]:
    """Give the entries that were made for a key, as the tool returns them.

    Raises:
        psycopg.OperationalError: Postgres is away.
    """
    with _connected(installation) as connection:
        rows = connection.execute(_ROWS.format(_table(installation))).fetchall()
    return [_entry(row) for row in rows if row["key"] == key]


def enter_into_books(installation: Installation, world: World) -> None:
    """Let the world's books say what stands in the table: only what was committed has happened."""
    collection = COLLECTIONS[TRANSACTIONAL]
    made = world.resources.setdefault(collection, {})
    with _connected(installation) as connection:
        rows = connection.execute(_ROWS.format(_table(installation))).fetchall()
    for row in rows:
        made.setdefault(row["key"], _entry(row))
        world.posts.append(Posted(collection, row["key"], row["pid"], True, row["attempt"], row["at_ms"]))


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("key", "title", "number")}


def _table(installation: Installation) -> sql.Identifier:
    return sql.Identifier(installation.schema, TABLE)


def _connected(installation: Installation) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(installation.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True, row_factory=dict_row)
