"""The effects table on Postgres: in Runfold's own database, or next to what the author's tools write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from runfold.adapters.postgres.database import check_dsn, lent
from runfold.adapters.postgres.errors import StoreMisconfigured
from runfold.adapters.postgres.statements import check_schema, fill, load_migrations, load_statements
from runfold.core.events import Outcome
from runfold.ports.agents import Begun, Returned
from runfold.ports.effects import CommitUnknown, Effect, EffectsUnavailable, KeyHeld, Work

Connection = psycopg.AsyncConnection[TupleRow]
_TABLE = "0002_effects"
_CLAIM_ROUNDS = 10
# What a server that goes away says, or a pool that has no connection to give.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, PoolClosed, PoolTimeout)


class PostgresEffects:
    """See ``ports.effects.EffectsTable``.

    Args:
        dsn: A libpq URL of the database.
        schema: Where the table is.
        transactions: How many TRANSACTIONAL calls run at the same time; each holds a connection. More wait.
        questions: Connections for everything else, so that it never waits for an author's tool.
        timeout_s: A question that takes longer counts as unanswered.

    Raises:
        StoreMisconfigured: If the DSN or the schema's name is not one.
    """

    def __init__(
        self, dsn: str, schema: str, *, transactions: int = 16, questions: int = 4, timeout_s: float = 10.0
    ) -> None:
        self.schema = check_schema(schema)
        self._statements = load_statements(schema)
        self._timeout_s = timeout_s
        self._transactions = self._pool(dsn, transactions, _reset)
        self._questions = self._pool(dsn, questions, None)  # no author's code ever has one

    def _pool(
        self, dsn: str, max_size: int, reset: Callable[[Connection], Awaitable[None]] | None
    ) -> AsyncConnectionPool[Connection]:
        return AsyncConnectionPool(
            check_dsn(dsn),
            connection_class=Connection,
            kwargs={"autocommit": True},
            min_size=0,
            max_size=max_size,
            timeout=self._timeout_s,
            check=AsyncConnectionPool.check_connection,
            configure=_configure,
            reset=reset,
            open=False,
        )

    async def open(self) -> None:
        """Start the pools; does not wait for the server."""
        await self._transactions.open(wait=False)
        await self._questions.open(wait=False)

    async def close_pools(self) -> None:
        """Close every connection."""
        await self._transactions.close()
        await self._questions.close()

    async def ensure(self) -> None:
        """Make the schema and the table where they are missing; safe to run twice and at once.

        Raises:
            EffectsUnavailable: Try again.
            StoreMisconfigured: The user may not.
        """
        table = next(migration for migration in load_migrations() if migration.name == _TABLE)
        try:
            async with self._question() as connection, connection.transaction():
                await connection.execute(self._statements["migrations_lock"], {"schema": self.schema})
                # Asked first: `create … if not exists` wants the right to create even where there is nothing to do.
                if (await connection.execute(self._statements["schema_exists"], {"schema": self.schema})).rowcount == 0:
                    await connection.execute(self._statements["schema_create"])
                if (await self._value(connection, "effects_exist", schema=self.schema)) is None:
                    await connection.execute(fill(table.text, self.schema))
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreMisconfigured(
                f"the effects table cannot be made in schema {self.schema!r}: {_said(error)}; let a user "
                "who may create it run the app once, or run `runfold setup` there"
            ) from error

    # --- TRANSACTIONAL ------------------------------------------------------------------------------------------

    async def perform(self, effect: Effect, wait_s: float, hold_s: float, work: Work) -> Returned | Begun:
        """See ``ports.effects.EffectsTable``."""
        stage = _Stage()
        try:
            async with lent(self._transactions, wait_s) as connection:
                async with connection.transaction():
                    stored = await self._begin(connection, effect, wait_s, hold_s)
                    if stored is not None:
                        return stored
                    stage.is_authors = True
                    returned = await self._work(connection, work)
                    stage.is_authors = False
                    await self._end(connection, effect, None, returned)
                    stage.is_commit = True
                return returned
        except _AWAY as error:
            if stage.is_authors:
                raise
            raise self._translated(error, is_commit=stage.is_commit, effect=effect) from error
        except psycopg.errors.UndefinedTable as error:
            raise self._missing(error) from error

    async def _begin(
        self, connection: Connection, effect: Effect, wait_s: float, hold_s: float
    ) -> Returned | Begun | None:
        """Take the key; gives what is stored under it if it has been taken before."""
        limits = {"wait": _ms(wait_s), "hold": _ms(hold_s), "whole": _ms(wait_s + 2 * hold_s)}
        await connection.execute(self._statements["effect_limits"], limits)
        arguments = {"run_id": effect.run_id, "step": effect.step, "attempt": effect.attempt}
        taken = await connection.execute(self._statements["effect_begin"], arguments)
        if taken.rowcount == 0:
            stored = await self._stored(connection, effect.run_id, effect.step)
            return Begun(effect.attempt) if stored is None else stored
        await connection.execute(self._statements["effect_lock_timeout"])
        return None

    @staticmethod
    async def _work(connection: Connection, work: Work) -> Returned:
        await connection.execute("savepoint runfold_effect")
        try:
            returned = await work(connection)
        except psycopg.Rollback as error:  # would end the transaction around it as if nothing were wrong
            raise TransactionSpoilt(
                "the tool raised psycopg.Rollback outside of a transaction block of its own: raise another error"
            ) from error
        status = connection.info.transaction_status
        if returned.outcome is not Outcome.SUCCESS and status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            await connection.execute("rollback to savepoint runfold_effect")
        elif status is TransactionStatus.INERROR:
            raise TransactionSpoilt(
                "a statement of the tool failed and its error was ignored: nothing can be committed"
            )
        elif status is not TransactionStatus.INTRANS:
            raise TransactionSpoilt(
                "the tool ended the transaction that it was handed: leave commit and rollback to Runfold"
            )
        return returned

    async def _end(self, connection: Connection, effect: Effect, holder: str | None, returned: Returned) -> None:
        await connection.execute(self._statements["effect_end"], _columns(effect, returned) | {"holder": holder})

    # --- dedupe -------------------------------------------------------------------------------------------------

    async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
        """See ``ports.effects.EffectsTable``."""
        arguments = _named(effect) | {"holder": holder, "absent_upto": absent_upto}
        async with self._question() as connection:
            for _ in range(_CLAIM_ROUNDS):
                if await self._value(connection, "effect_claim", **arguments) is not None:
                    return None
                stored = await self._stored(connection, effect.run_id, effect.step)
                if stored is not None:  # else it was released in between
                    return stored
        raise EffectsUnavailable(f"the key {effect.run_id}:{effect.step} is claimed and released again and again")

    async def release(self, effect: Effect, holder: str) -> None:
        """See ``ports.effects.EffectsTable``."""
        async with self._question() as connection:
            await connection.execute(self._statements["effect_release"], _named(effect) | {"holder": holder})

    async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
        """See ``ports.effects.EffectsTable``."""
        async with self._question() as connection:
            await self._end(connection, effect, holder, returned)

    # --- both ---------------------------------------------------------------------------------------------------

    async def find(self, run_id: str, step: int) -> Returned | Begun | None:
        """See ``ports.effects.EffectsTable``."""
        async with self._question() as connection:
            return await self._stored(connection, run_id, step)

    async def close(self, effect: Effect, returned: Returned, wait_s: float) -> Returned | Begun:
        """See ``ports.effects.EffectsTable``."""
        limits = {"wait": _ms(wait_s), "hold": None, "whole": None}
        async with self._question(wait_s, effect) as connection, connection.transaction():
            await connection.execute(self._statements["effect_limits"], limits)
            closed = await connection.execute(self._statements["effect_close"], _columns(effect, returned))
            stored = None if closed.rowcount else await self._stored(connection, effect.run_id, effect.step)
        if closed.rowcount:
            return replace(returned, from_table=True)
        if stored is None:
            raise EffectsUnavailable(f"the key {effect.run_id}:{effect.step} was released while it was being closed")
        return stored

    async def _stored(self, connection: Connection, run_id: str, step: int) -> Returned | Begun | None:
        async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            await cursor.execute(self._statements["effect_find"], {"run_id": run_id, "step": step})
            row = await cursor.fetchone()
        if row is None:
            return None
        attempt, outcome, result, for_model, patch = row
        if outcome is None:
            return Begun(attempt)
        return Returned(Outcome(outcome), result, for_model=for_model, patch=patch, from_table=True)

    async def _value(self, connection: Connection, name: str, **arguments: object) -> Any:  # noqa: ANN401 - any column
        row = await (await connection.execute(self._statements[name], arguments)).fetchone()
        return None if row is None else row[0]

    @contextlib.asynccontextmanager
    async def _question(self, longer_s: float = 0.0, effect: Effect | None = None) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(self._timeout_s + longer_s), lent(self._questions) as connection:
                yield connection
        except _AWAY as error:
            raise self._translated(error, is_commit=False, effect=effect) from error
        except psycopg.errors.UndefinedTable as error:
            raise self._missing(error) from error
        except TimeoutError as error:
            raise EffectsUnavailable("the effects table did not answer in time") from error

    def _missing(self, error: Exception) -> EffectsUnavailable:
        return EffectsUnavailable(f"schema {self.schema!r} has no effects table ({_said(error)}): run `runfold setup`")

    @staticmethod
    def _translated(error: Exception, *, is_commit: bool, effect: Effect | None) -> EffectsUnavailable:
        if isinstance(error, psycopg.errors.LockNotAvailable) and effect is not None:
            return KeyHeld(f"another execution holds the key {effect.run_id}:{effect.step} in its transaction")
        if is_commit:
            return CommitUnknown(f"COMMIT was sent and not answered: {_said(error)}")
        return EffectsUnavailable(f"the effects table cannot be reached: {_said(error)}")


class TransactionSpoilt(Exception):
    """The author's tool left a transaction behind that cannot be committed as a whole."""


class _Stage:
    """How far a transaction has come: errors of the author's own statements are the author's."""

    is_authors = False
    is_commit = False


async def open_effects(dsn: str, schema: str, *, make: bool, **sizes: Any) -> PostgresEffects:  # noqa: ANN401 - passed on
    """Open the table and prove that it is there; the caller closes it with ``close_pools``.

    Args:
        dsn: A libpq URL.
        schema: Where it is.
        make: Make it if it is missing: in a database that ``runfold setup`` does not look after.
        sizes: See ``PostgresEffects``.

    Raises:
        EffectsUnavailable: Try again.
        StoreMisconfigured: The DSN is none, or the user may not make the table.
    """
    table = PostgresEffects(dsn, schema, **sizes)
    await table.open()
    try:
        if make:
            await table.ensure()
        await table.find("", 0)
    except BaseException:
        await table.close_pools()
        raise
    return table


async def _configure(connection: Connection) -> None:
    # Under a stricter level the wait for another holder of the key would end in an error instead of its outcome.
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)


async def _reset(connection: Connection) -> None:
    """Undo what a tool may have set for its session: parameters, role, locks, temporary tables, prepared statements.

    psycopg forgets what it has prepared when it sees this statement.
    """
    connection.row_factory = tuple_row
    await connection.execute("discard all", prepare=False)


def _named(effect: Effect) -> dict[str, Any]:
    return {"run_id": effect.run_id, "step": effect.step, "attempt": effect.attempt}


def _columns(effect: Effect, returned: Returned) -> dict[str, Any]:
    return _named(effect) | {
        "outcome": returned.outcome.value,
        "result": returned.result,
        "for_model": returned.for_model,
        "patch": returned.patch,
    }


def _ms(seconds: float) -> str:
    """Give a time-out as Postgres takes it; 0 would mean none, and 2³¹-1 is its largest."""
    return str(min(max(1, round(seconds * 1000)), 2**31 - 1))


def _said(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
