"""How often a question waits for Postgres: what counts where the server is far away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runfold.adapters.postgres import PostgresStore, migrate, open_store
from tests.contract.store import rows

pytestmark = pytest.mark.integration

# The pool asks each connection that it lends whether it lives.
_PROOF = 1
_CHUNK = 1 << 16


class Counter:
    """Stands between a client and the server; a journey begins where the client speaks after the server did."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open: list[asyncio.StreamWriter] = []
        self.journeys = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on until both have said their last word."""
        there, back = await asyncio.open_connection(*self._server)
        self._open += [writer, back]
        answered = True

        async def out() -> None:
            nonlocal answered
            while data := await reader.read(_CHUNK):
                self.journeys += answered
                answered = False
                back.write(data)
            back.write_eof()

        async def home() -> None:
            nonlocal answered
            while data := await there.read(_CHUNK):
                answered = True
                writer.write(data)

        await asyncio.gather(out(), home())

    async def close(self) -> None:
        """Close every connection."""
        for writer in self._open:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def counted(dsn: str, schema: str) -> AsyncIterator[tuple[PostgresStore, Counter]]:
    """Open a store of one connection, with a counter in between."""
    given: dict[str, Any] = conninfo_to_dict(dsn)
    counter = Counter(given["host"], int(given["port"]))
    async with await asyncio.start_server(counter.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = await open_store(make_conninfo(dsn, host="127.0.0.1", port=port), schema, max_size=1)
        try:
            yield store, counter
        finally:
            await store.close()
            await counter.close()


async def test_a_read_and_every_commit_wait_for_the_server_once(postgres_dsn: str, postgres_schema: str) -> None:
    """However many statements they are."""
    await migrate(postgres_dsn, postgres_schema)
    async with counted(postgres_dsn, postgres_schema) as (store, counter):
        row = await store.commit(rows.commit(runs=[rows.run()]))

        before = counter.journeys
        row = await store.commit(rows.commit(row, runs=[rows.run()]))
        assert counter.journeys - before == _PROOF + 1

        before = counter.journeys
        await store.commit(rows.commit(row, **rows.every_part()))
        assert counter.journeys - before == _PROOF + 1

        before = counter.journeys
        _, found = await store.load_runs_as_of(row.partition, ["run"])
        assert counter.journeys - before == _PROOF + 1
        assert [snapshot.seq for snapshot in found["run"].snapshots] == [rows.snapshot().seq]
