"""Makes and changes the tables: forward only, safe to run twice and at once."""

from __future__ import annotations

from psycopg.rows import dict_row

from runfold.adapters.postgres.database import Connection, check_dsn, translated
from runfold.adapters.postgres.errors import StoreMisconfigured
from runfold.adapters.postgres.statements import Migration, check_schema, fill, load_migrations, load_statements


async def migrate(dsn: str, schema: str) -> list[str]:
    """Apply what is missing, in one transaction, under a lock that lets one caller at a time through.

    Args:
        dsn: A libpq URL of a user who may create the schema or tables in it.
        schema: Where the tables are; created if it is missing.

    Returns:
        Names of the migrations that were applied now, oldest first; [] if there were none.

    Raises:
        StoreUnavailable: Postgres cannot be reached: try again.
        StoreMisconfigured: The DSN is none, the user may not, the database is newer than this code, or a migration
            was applied in another form than this code has it.
    """
    conninfo, known = check_dsn(dsn), load_migrations()
    statements = load_statements(check_schema(schema))
    with translated(schema):
        async with (
            await Connection.connect(conninfo, autocommit=True, row_factory=dict_row) as connection,
            connection.transaction(),
        ):
            await connection.execute(statements["migrations_lock"], {"schema": schema})
            # Asked first: `create schema if not exists` wants the right to create one even where it exists.
            if (await connection.execute(statements["schema_exists"], {"schema": schema})).rowcount == 0:
                await connection.execute(statements["schema_create"])
            await connection.execute(statements["migrations_table"])
            missing = await _missing(connection, statements["migrations_applied"], schema, known)
            for migration in missing:
                await connection.execute(fill(migration.text, schema))
                record = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
                await connection.execute(statements["migration_record"], record)
    return [migration.name for migration in missing]


async def _missing(connection: Connection, query: bytes, schema: str, known: list[Migration]) -> list[Migration]:
    by_version = {migration.version: migration for migration in known}
    applied: set[int] = set()
    async for row in await connection.execute(query):
        migration = by_version.get(row["version"])
        if migration is None:
            raise StoreMisconfigured(
                f"schema {schema!r} is newer than this code: it has migration {row['name']}, the newest known here is "
                f"{known[-1].name}; use the release that made it, or a later one"
            )
        if migration.checksum != row["checksum"]:
            raise StoreMisconfigured(
                f"migration {migration.name} was applied to schema {schema!r} in another form than this code has it: "
                "released migrations are never edited; use the release that made the schema"
            )
        applied.add(migration.version)
    return [migration for migration in known if migration.version not in applied]
