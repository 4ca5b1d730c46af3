"""Reaching Postgres: an answer at once, where a pool would try again until its time is over."""

from __future__ import annotations

import psycopg

from runfold.adapters.postgres import PostgresStore, open_store
from runfold.adapters.postgres.database import check_dsn, translated
from runfold.service.settings import Installation


async def reach_postgres(settings: Installation, *, max_size: int = 4, timeout_s: float = 30.0) -> PostgresStore:
    """Open a store; the caller closes it.

    Args:
        settings: Where it is.
        max_size: Connections at most.
        timeout_s: An operation that takes longer counts as unavailable.

    Raises:
        StoreUnavailable: Postgres cannot be reached, which is known within seconds.
        StoreMisconfigured: The tables are missing or the user may not; the message says how to mend it.
    """
    dsn = settings.postgres_dsn.get_secret_value()
    with translated(settings.postgres_schema):
        await (await psycopg.AsyncConnection.connect(check_dsn(dsn))).close()
    return await open_store(dsn, settings.postgres_schema, max_size=max_size, timeout_s=timeout_s)
