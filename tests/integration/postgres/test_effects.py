"""The effects table on a real Postgres: what only a server can do to a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from runfold.adapters.postgres import migrate
from runfold.adapters.postgres.effects import PostgresEffects, TransactionSpoilt, open_effects
from runfold.core.events import Outcome
from runfold.ports.agents import Begun, Returned
from runfold.ports.effects import CommitUnknown, Effect, EffectsUnavailable

pytestmark = pytest.mark.integration

DONE = Returned(Outcome.SUCCESS, b"1")
FIRST, SECOND = Effect("run", 2, 1), Effect("run", 2, 2)


@pytest.fixture
async def table(postgres_dsn: str, postgres_schema: str) -> AsyncIterator[PostgresEffects]:
    """Give an empty table in a database that setup does not look after."""
    opened = await open_effects(postgres_dsn, postgres_schema, make=True)
    yield opened
    await opened.close_pools()


async def perform(table: PostgresEffects, work: Any, effect: Effect = FIRST) -> Returned | Begun:
    """Execute with ample time."""
    return await table.perform(effect, 20.0, 30.0, work)


async def test_it_is_made_once_by_several_processes_at_once(postgres_dsn: str, postgres_schema: str) -> None:
    """And ``runfold setup`` may come before or after them."""
    opened = await asyncio.gather(*(open_effects(postgres_dsn, postgres_schema, make=True) for _ in range(6)))
    assert "0002_effects" in await migrate(postgres_dsn, postgres_schema)
    opened.append(await open_effects(postgres_dsn, postgres_schema, make=True))
    for one in opened:
        await one.close_pools()


async def test_a_missing_table_is_said_with_its_mend(postgres_dsn: str, postgres_schema: str) -> None:
    with pytest.raises(EffectsUnavailable, match=r"has no effects table .*run `runfold setup`"):
        await open_effects(postgres_dsn, postgres_schema, make=False)


async def test_a_commit_without_an_answer_is_unknown(
    table: PostgresEffects, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies between the last statement and COMMIT: nothing was committed, and the key can be executed."""
    end = PostgresEffects._end

    async def end_and_die(self: PostgresEffects, connection: Any, *rest: Any) -> None:
        await end(self, connection, *rest)
        async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as other:
            await other.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])

    async def work(_: Any) -> Returned:
        return DONE

    with monkeypatch.context() as patched:
        patched.setattr(PostgresEffects, "_end", end_and_die)
        with pytest.raises(CommitUnknown):
            await perform(table, work)
    assert await table.find("run", 2) is None
    assert await perform(table, work, SECOND) == DONE


async def test_a_tool_that_ends_the_transaction_leaves_a_key_of_which_nobody_knows(table: PostgresEffects) -> None:
    """psycopg refuses ``commit()``; who commits by SQL has parted the effect from its key."""  # noqa: D403

    async def by_method(connection: psycopg.AsyncConnection[Any]) -> Returned:
        await connection.commit()
        return DONE

    async def by_sql(connection: psycopg.AsyncConnection[Any]) -> Returned:
        await connection.execute("commit")
        return DONE

    with pytest.raises(psycopg.ProgrammingError, match="commit"):
        await perform(table, by_method)
    assert await table.find("run", 2) is None
    with pytest.raises(TransactionSpoilt, match="ended the transaction"):
        await perform(table, by_sql)
    assert await table.find("run", 2) == Begun(1)
    assert await perform(table, by_sql, SECOND) == Begun(1)


async def test_a_failed_statement_that_was_ignored_commits_nothing(table: PostgresEffects) -> None:
    """But a failure that the tool tells the model of is stored."""

    async def ignoring(connection: psycopg.AsyncConnection[Any], returned: Returned = DONE) -> Returned:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await connection.execute("select * from nowhere")
        return returned

    async def telling(connection: psycopg.AsyncConnection[Any]) -> Returned:
        return await ignoring(connection, Returned(Outcome.FAILED, b'"no"'))

    with pytest.raises(TransactionSpoilt, match="error was ignored"):
        await perform(table, ignoring)
    assert await table.find("run", 2) is None
    await perform(table, telling)
    assert await table.find("run", 2) == Returned(Outcome.FAILED, b'"no"', from_table=True)


async def test_a_tool_gets_a_plain_connection_whatever_the_one_before_did_to_it(
    table: PostgresEffects, postgres_dsn: str
) -> None:
    """Rows as tuples, the session's own settings; only the limits of this transaction are Runfold's."""
    seen: list[Any] = []

    async def spoil(connection: psycopg.AsyncConnection[Any]) -> Returned:
        await connection.execute("set search_path to nowhere")
        connection.row_factory = psycopg.rows.dict_row
        return DONE

    async def look(connection: psycopg.AsyncConnection[Any]) -> Returned:
        names = "search_path", "lock_timeout", "idle_in_transaction_session_timeout"
        seen.extend([await (await connection.execute(f"show {name}")).fetchone() for name in names])
        return DONE

    one = await open_effects(postgres_dsn, table.schema, make=False, transactions=1)
    await perform(one, spoil)
    await perform(one, look, Effect("run", 3, 1))
    await one.close_pools()
    assert seen == [('"$user", public',), ("0",), ("30s",)]


async def test_role_locks_and_temporary_tables_of_a_tool_end_with_it(
    table: PostgresEffects, postgres_dsn: str, postgres_schema: str
) -> None:
    """The next call on that connection is who it should be; what psycopg has prepared there is no trap either."""
    seen: list[Any] = []
    role = sql.Identifier(f"narrow_{postgres_schema}")

    async def spoil(connection: psycopg.AsyncConnection[Any]) -> Returned:
        await connection.execute("select pg_advisory_lock(4711)")
        await connection.execute("create temporary table mine (n int)")
        await connection.execute("select 1 + 1", prepare=True)
        await connection.execute(sql.SQL("grant all on schema {} to {}").format(sql.Identifier(postgres_schema), role))
        tables = sql.SQL("grant all on all tables in schema {} to {}")
        await connection.execute(tables.format(sql.Identifier(postgres_schema), role))
        await connection.execute(sql.SQL("set role {}").format(role))
        return DONE

    async def look(connection: psycopg.AsyncConnection[Any]) -> Returned:
        await connection.execute("select 1 + 1", prepare=True)
        asked = "select current_user = session_user, to_regclass('mine') is null"
        seen.append(await (await connection.execute(asked)).fetchone())
        return DONE

    one = await open_effects(postgres_dsn, table.schema, make=False, transactions=1)
    async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as other:
        await other.execute(sql.SQL("create role {}").format(role))
        try:
            await perform(one, spoil)
            await perform(one, look, Effect("run", 3, 1))
            locked = await (await other.execute("select pg_try_advisory_lock(4711)")).fetchone()
        finally:
            await one.close_pools()
            await other.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
    assert (seen, locked) == ([(True, True)], (True,))


async def test_a_bare_rollback_is_the_tools_own_error(table: PostgresEffects) -> None:
    """psycopg would leave the transaction in silence, as if the tool had returned."""  # noqa: D403

    async def leave(_: psycopg.AsyncConnection[Any]) -> Returned:
        raise psycopg.Rollback

    with pytest.raises(TransactionSpoilt, match=r"raised psycopg\.Rollback"):
        await perform(table, leave)
    assert await table.find("run", 2) is None
    assert await perform(table, lambda _: asyncio.sleep(0, DONE), SECOND) == DONE


async def test_questions_do_not_wait_for_tools(postgres_dsn: str, table: PostgresEffects) -> None:
    """All connections for transactions are taken: a key can still be looked up, and a tool waits for its turn."""
    one = await open_effects(postgres_dsn, table.schema, make=False, transactions=1)
    is_in, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Any) -> Returned:
        is_in.set()
        await go_on.wait()
        return DONE

    async def quick(_: Any) -> Returned:
        return DONE

    first = asyncio.create_task(perform(one, slow))
    await is_in.wait()
    second = asyncio.create_task(perform(one, quick, Effect("run", 3, 1)))
    assert await one.find("run", 3) is None
    assert not second.done()
    go_on.set()
    assert [await first, await second] == [DONE, DONE]
    await one.close_pools()
