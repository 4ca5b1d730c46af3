"""Connections: one pool per process, and what each failure means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed

from runfold.adapters.postgres.errors import StoreMisconfigured
from runfold.adapters.postgres.statements import check_schema, load_statements
from runfold.ports.store import StoreUnavailable

Connection = psycopg.AsyncConnection[DictRow]
C = TypeVar("C", bound="psycopg.AsyncConnection[Any]")
Asked = tuple[str, Mapping[str, object]]
"""The name of a query, and its arguments."""

_READ_ONLY = "set transaction isolation level repeatable read, read only"
_BEGIN = "begin"
_BEGIN_READ_ONLY = "begin isolation level repeatable read, read only"

# A host that vanished without a word is noticed after about ten seconds; the DSN may say otherwise.
_DEFAULTS = {
    "application_name": "runfold",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_SETUP = "run `runfold setup`"


def check_dsn(dsn: str) -> str:
    """Give a DSN with the defaults of this adapter filled in.

    Raises:
        StoreMisconfigured: If libpq cannot read it. The message does not repeat it: it may hold a password.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error as error:
        raise StoreMisconfigured(
            f"RUNFOLD_POSTGRES_DSN is not a libpq URL such as postgresql://user@host:5432/database: {error}"
        ) from None
    # Whatever the environment or the role say: nothing that a model or a tool writes may be unwritable.
    return make_conninfo(**{**_DEFAULTS, **given, "client_encoding": "utf8"})


@contextmanager
def translated(schema: str, *, proven: bool = False) -> Iterator[None]:
    """Turn psycopg's errors into those of the port; anything else is a defect and passes.

    ``proven``: the tables were there when this process looked: if they are gone, somebody is restoring them.
    """
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedColumn) as error:
        if proven:
            raise StoreUnavailable(
                f"Postgres: the tables of schema {schema!r} are gone: restore them from a backup, or {_SETUP}, and the "
                "compactor folds them again from the log"
            ) from error
        if isinstance(error, psycopg.errors.UndefinedColumn):
            raise StoreMisconfigured(f"schema {schema!r}: tables are of another release: {_SETUP}") from error
        raise StoreMisconfigured(f"schema {schema!r}: tables are missing: {_SETUP}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreMisconfigured(f"the database user may not use schema {schema!r}: {_said(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolClosed) as error:
        raise StoreUnavailable(f"Postgres: {_said(error)}") from error
    except TimeoutError as error:
        raise StoreUnavailable("Postgres did not answer in time") from error


def _said(error: Exception) -> str:
    """Give what libpq or the server says, often on several lines, on one."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


@asynccontextmanager
async def lent(pool: AsyncConnectionPool[C], timeout_s: float | None = None) -> AsyncIterator[C]:
    """Lend a connection, and raise a cancellation of this task that the pool has dropped.

    Up to Python 3.11 ``asyncio.wait_for``, by which the pool waits for a connection, drops one that comes in the same
    round of the event loop as what it waits for (python/cpython#86296). The task would go on for ever, and who has
    cancelled it would wait for it.
    """
    task = asyncio.current_task()
    known = 0 if task is None else task.cancelling()

    def check() -> None:
        if task is not None and task.cancelling() > known:
            raise asyncio.CancelledError

    try:
        async with pool.connection(timeout_s) as connection:
            check()  # before anything is done with it
            yield connection
    finally:
        check()


class Database:
    """The pool and the statements of one schema.

    Args:
        dsn: A libpq URL or key/value string.
        schema: Where the tables are.
        max_size: Connections at most.
        timeout_s: An operation that takes longer counts as unavailable.

    Attributes:
        proven: The tables were there when they were looked at: if they are gone since, that is waited for.

    Raises:
        StoreMisconfigured: If the DSN or the schema's name is not one.
    """

    def __init__(self, dsn: str, schema: str, *, max_size: int, timeout_s: float) -> None:
        self.schema = check_schema(schema)
        self.proven = False
        self.statements = load_statements(schema)
        self._timeout_s = timeout_s
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            check_dsn(dsn),
            connection_class=Connection,
            kwargs={"autocommit": True, "row_factory": dict_row},
            min_size=1,
            max_size=max_size,
            timeout=timeout_s,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )

    async def open(self) -> None:
        """Start the pool; does not wait for the server."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode.

        Raises:
            StoreUnavailable: It could not be had, or broke while it was lent.
            StoreMisconfigured: The tables are missing.
        """
        with translated(self.schema, proven=self.proven):
            async with asyncio.timeout(self._timeout_s), lent(self._pool) as connection:
                yield connection

    async def fetch(self, connection: Connection, name: str, **arguments: object) -> list[DictRow]:
        """Run a named query and give its rows."""
        # Binary: chunks and states arrive as they are, not as hexadecimal text.
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self.statements[name], arguments)
            return await cursor.fetchall()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend a connection that sees one moment of the data, and changes nothing; errors as of ``connection``."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute(_READ_ONLY)
            yield connection

    @asynccontextmanager
    async def together(self, begin: str = _BEGIN) -> AsyncIterator[Connection]:
        """Lend a connection whose statements are one transaction and go out in one journey to the server.

        Nothing is known of a statement before the end; the first error undoes all of them.

        Raises:
            StoreUnavailable, StoreMisconfigured: As of ``connection``.
        """
        async with self.connection() as connection:
            try:
                # Not psycopg's transaction(): within a pipeline it waits for the beginning, and for the end.
                async with connection.pipeline():
                    await connection.execute(begin)
                    yield connection
                    await connection.execute("commit")
            except BaseException:
                # Wherever it stands in the transaction: nobody else gets it.
                await connection.close()
                raise

    async def fetch_together(self, *asked: Asked) -> list[list[DictRow]]:
        """Run named queries on one moment of the data, in one journey, and give the rows of each.

        Raises:
            StoreUnavailable, StoreMisconfigured: As of ``connection``.
        """
        async with self.together(_BEGIN_READ_ONLY) as connection:
            cursors = [
                await connection.cursor(binary=True).execute(self.statements[name], arguments)
                for name, arguments in asked
            ]
        return [await cursor.fetchall() for cursor in cursors]

    async def execute(self, connection: Connection, name: str, **arguments: object) -> int:
        """Run a named statement and give the number of rows that it touched; of no meaning yet within ``together``."""
        return (await connection.execute(self.statements[name], arguments)).rowcount
