"""The store on Postgres: snapshots, projections, leases; plain SQL in named files, psycopg 3."""

from __future__ import annotations

from runfold.adapters.postgres.errors import StoreMisconfigured
from runfold.adapters.postgres.migrate import migrate
from runfold.adapters.postgres.store import PostgresStore, open_store

__all__ = ["PostgresStore", "StoreMisconfigured", "migrate", "open_store"]
