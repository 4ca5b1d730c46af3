"""All roles on one pool, and the constructor that services and clients use."""

from __future__ import annotations

from runfold.adapters.postgres.audit import Auditor
from runfold.adapters.postgres.compactor import CompactorWriter
from runfold.adapters.postgres.database import Database
from runfold.adapters.postgres.errors import StoreMisconfigured
from runfold.adapters.postgres.queries import QueryReader
from runfold.adapters.postgres.reconciler import ReconcilerLeases
from runfold.adapters.postgres.statements import load_migrations


class PostgresStore(CompactorWriter, ReconcilerLeases, QueryReader, Auditor):
    """The four Protocols of ``ports.store``, and ``ports.audit``."""

    async def check(self) -> None:
        """Prove that the tables are there.

        A schema that is *newer* than this code is fine: while a new release is rolled out, ``runfold setup`` runs
        before the services are replaced, and migrations are written so that the release before still works.

        Raises:
            StoreUnavailable: Postgres cannot be reached.
            StoreMisconfigured: The schema is missing, or older than this code.
        """
        applied = set((await self.describe())["migrations"])
        missing = [migration.name for migration in load_migrations() if migration.name not in applied]
        if missing:
            raise StoreMisconfigured(
                f"schema {self._database.schema!r} lacks {', '.join(missing)}: run `runfold setup` with this release"
            )
        self._database.proven = True

    async def close(self) -> None:
        """Close every connection."""
        await self._database.close()


async def open_store(dsn: str, schema: str, *, max_size: int = 4, timeout_s: float = 30.0) -> PostgresStore:
    """Open a store and prove that its tables are there; the caller closes it.

    Args:
        dsn: A libpq URL.
        schema: Where ``runfold setup`` has put the tables.
        max_size: Connections at most.
        timeout_s: An operation that takes longer counts as unavailable.

    Raises:
        StoreUnavailable: Postgres cannot be reached: try again.
        StoreMisconfigured: The DSN is none, or the tables are missing; the message says how to mend it.
    """
    database = Database(dsn, schema, max_size=max_size, timeout_s=timeout_s)
    store = PostgresStore(database)
    await database.open()
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store
