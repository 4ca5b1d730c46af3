"""Loads runs that are not in memory; loads that are asked for at the same time share one query."""

from __future__ import annotations

import asyncio

import structlog

from runfold.ports.clock import Chance
from runfold.ports.store import Snapshots, StoredRun, StoreUnavailable
from runfold.runtime.persist import persist

_log = structlog.get_logger(__name__)
_MOST_AT_ONCE = 500


class RunLoader:
    """Answers "what does Postgres know of this run", in batches; waits while Postgres is away.

    ``serve`` has to run as a task of the owner.
    """

    def __init__(self, store: Snapshots, chance: Chance) -> None:
        self._store = store
        self._chance = chance
        self._wanted: dict[str, asyncio.Future[StoredRun | None]] = {}
        self._work = asyncio.Event()

    async def load(self, run_id: str) -> StoredRun | None:
        """Give what is stored of a run, or None if there is no such run."""
        future = self._wanted.get(run_id)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._wanted[run_id] = future
            self._work.set()
        return await asyncio.shield(future)

    async def serve(self) -> None:
        """Answer until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._wanted:
                batch = {run_id: self._wanted.pop(run_id) for run_id in list(self._wanted)[:_MOST_AT_ONCE]}
                await self._answer(batch)

    async def _answer(self, batch: dict[str, asyncio.Future[StoredRun | None]]) -> None:
        stored = await self._read(list(batch))
        for run_id, future in batch.items():
            if not future.done():
                future.set_result(stored.get(run_id))

    async def _read(self, run_ids: list[str]) -> dict[str, StoredRun]:
        def tell(error: Exception, failures: int) -> None:
            _log.warning("postgres_away", waiting_runs=len(run_ids), error=str(error), failures=failures)

        return await persist(lambda: self._store.load_runs(run_ids), StoreUnavailable, self._chance, tell)
