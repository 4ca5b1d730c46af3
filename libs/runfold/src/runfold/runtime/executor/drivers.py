"""The runs of a tenure that are in memory, and how they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from runfold.ports.store import StoreUnavailable
from runfold.runtime.executor.driver import Driver
from runfold.runtime.executor.horizon import StoreBehind
from runfold.runtime.executor.mailbox import Arrived
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.restore import Loaded

_log = structlog.get_logger(__name__)


class Drivers:
    """One driver for each run in memory, each with its task.

    Args:
        tenure: The ownership under which they act.
        group: Owns their tasks.
    """

    def __init__(self, tenure: Tenure, group: asyncio.TaskGroup) -> None:
        self._tenure = tenure
        self._group = group
        self._drivers: dict[str, tuple[Driver, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._drivers)

    def __iter__(self) -> Iterator[Driver]:
        return (driver for driver, _ in self._drivers.values())

    def begin(self, run_id: str, loaded: Loaded | None = None) -> Driver:
        """Give the run's driver; it is made, with its task, if the run is not in memory."""
        found = self._drivers.get(run_id)
        if found is not None:
            return found[0]
        driver = Driver(self._tenure, run_id, loaded)
        self._drivers[run_id] = (driver, self._group.create_task(driver.drive(), name=f"run {run_id}"))
        self._count()
        return driver

    def deliver(self, run_id: str, arrived: Arrived) -> None:
        """Hand an input to its run."""
        self.begin(run_id).run.mailbox.arrive(arrived)

    @property
    def drained(self) -> bool:
        """Whether nothing of the partition runs any more and every known outcome is appended."""
        running = self._tenure.world.effects.running(self._tenure.partition)
        return running == 0 and all(driver.quiet for driver in self)

    @property
    def busy(self) -> int:
        """How many runs move by themselves."""
        return sum(not driver.idle for driver in self)

    async def sweep(self) -> None:
        """Take runs at rest out of memory, again and again, each once a snapshot at its last event exists."""
        world = self._tenure.world
        while True:
            await asyncio.sleep(world.settings.evict_every_s)
            for driver in [driver for driver in self if driver.is_needless]:
                self._evict(driver)
            try:
                await self._evict_covered()
            except StoreBehind as error:
                world.metrics.store_behind(self._tenure.partition)
                _log.warning("postgres_behind", partition=self._tenure.partition, error=str(error))
            except StoreUnavailable as error:
                _log.warning("postgres_away", partition=self._tenure.partition, error=str(error))

    async def _evict_covered(self) -> None:
        resting = {
            driver.run.run_id: driver.run.state.seq
            for driver in self
            if driver.at_rest and driver.run.state is not None
        }
        if not resting:
            return
        horizon = self._tenure.horizon
        asked = horizon.seen
        watermark, covered = await self._tenure.world.store.covered_as_of(self._tenure.partition, resting)
        horizon.believe(watermark, asked)
        for run_id in covered:
            driver, _ = self._drivers[run_id]
            # It may have been told something while Postgres was asked.
            if driver.at_rest and driver.run.state is not None and driver.run.state.seq == resting[run_id]:
                self._evict(driver)

    def _evict(self, driver: Driver) -> None:
        _, task = self._drivers.pop(driver.run.run_id)
        task.cancel()
        self._count()

    def _count(self) -> None:
        self._tenure.world.metrics.runs_in_memory(self._tenure.partition, len(self))
