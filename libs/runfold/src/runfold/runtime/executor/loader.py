"""Loads runs that are not in memory; loads of one partition that are asked for at the same time share one query."""

from __future__ import annotations

import asyncio

import structlog

from runfold.ports.clock import Chance
from runfold.ports.store import Snapshots, StoredRun, StoreUnavailable
from runfold.runtime.executor.horizon import Horizon, StoreBehind
from runfold.runtime.executor.metrics import ExecutorMetrics
from runfold.runtime.persist import persist

_log = structlog.get_logger(__name__)
_MOST_AT_ONCE = 500

_Wanted = dict[str, asyncio.Future[StoredRun | None]]


class RunLoader:
    """Answers "what does Postgres know of this run", in batches.

    Waits while Postgres is away, or has not come as far as it had before (see ``horizon``); a partition that waits
    holds up no other. ``serve`` has to run as a task of the owner.
    """

    def __init__(self, store: Snapshots, chance: Chance, metrics: ExecutorMetrics) -> None:
        self._store = store
        self._chance = chance
        self._metrics = metrics
        self._wanted: dict[Horizon, _Wanted] = {}
        self._served: set[Horizon] = set()
        self._work = asyncio.Event()

    async def load(self, run_id: str, horizon: Horizon) -> StoredRun | None:
        """Give what is stored of a run, or None if there is no such run; one caller at a time for a run of a tenure."""
        future: asyncio.Future[StoredRun | None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(horizon, {})[run_id] = future
        self._work.set()
        return await future

    async def serve(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._work.wait()
                self._work.clear()
                for horizon in [horizon for horizon in self._wanted if horizon not in self._served]:
                    self._served.add(horizon)
                    group.create_task(self._serve(horizon), name=f"loader {horizon.partition}")

    async def _serve(self, horizon: Horizon) -> None:
        try:
            while wanted := self._wanted.get(horizon):
                batch = {run_id: wanted.pop(run_id) for run_id in list(wanted)[:_MOST_AT_ONCE]}
                stored = await self._read(horizon, batch)
                for run_id, future in batch.items():
                    if not future.done():
                        future.set_result(stored.get(run_id))
        finally:
            self._wanted.pop(horizon, None)
            self._served.discard(horizon)

    async def _read(self, horizon: Horizon, batch: _Wanted) -> dict[str, StoredRun]:
        def tell(error: Exception, failures: int) -> None:
            behind = isinstance(error, StoreBehind)
            if behind:
                self._metrics.store_behind(horizon.partition)
            _log.warning(
                "postgres_behind" if behind else "postgres_away",
                partition=horizon.partition,
                waiting_runs=len(batch),
                error=str(error),
                failures=failures,
            )

        async def ask() -> dict[str, StoredRun]:
            # Who asked may be gone: a tenure that is over is not waited for.
            run_ids = [run_id for run_id, future in batch.items() if not future.done()]
            if not run_ids:
                return {}
            asked = horizon.seen
            watermark, runs = await self._store.load_runs_as_of(horizon.partition, run_ids)
            horizon.believe(watermark, asked)
            return runs

        return await persist(ask, StoreUnavailable, self._chance, tell)
