"""Owns one partition from its assignment to its hand-over: claim, take over, drive; and claim again.

There is one recovery path. An epoch that is over, an append that failed, an outcome that is unknown: nothing more is
done in that epoch, and while the partition is still assigned it is claimed again, after a growing, jittered delay.
Start-up is the same path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import structlog

from runfold.codec import log as log_codec
from runfold.core.events import PartitionClaimed
from runfold.core.policy import claim_backoff
from runfold.core.positions import Positions
from runfold.ports.inputs import InputReader
from runfold.ports.log import AppendFailed, LogUnavailable, LogUnrecoverable
from runfold.ports.store import PartitionRow, StoreUnavailable
from runfold.runtime.executor.drivers import Drivers
from runfold.runtime.executor.effects import is_cancelled
from runfold.runtime.executor.horizon import Horizon
from runfold.runtime.executor.inputs import take_inputs
from runfold.runtime.executor.tenure import Tenure, World
from runfold.runtime.executor.writer import EpochOver, EpochWriter
from runfold.runtime.identity import check_inputs, inspect
from runfold.runtime.persist import persist
from runfold.runtime.resting import sleep_unless
from runfold.runtime.restore import Replay, take_over

_log = structlog.get_logger(__name__)
_DRAIN_POLL_S = 0.02
# An epoch that lasted this long was no failure of the claim before it.
_PEACE_S = 60.0


class _HandedOver(Exception):
    """Leaves the task group of a tenure that was drained."""


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


class PartitionOwner:
    """Owns one partition for as long as it is assigned; a new assignment gets a new owner.

    Args:
        own_epochs: Epochs that this process has claimed in this partition so far; shared by its owners.

    Attributes:
        ready: Whether a take-over is done and runs are being driven.
    """

    def __init__(self, world: World, partition: int, own_epochs: set[int]) -> None:
        self.ready = False
        self._world = world
        self._partition = partition
        self._own_epochs = own_epochs
        self._stopping = asyncio.Event()
        self._tenure: Tenure | None = None
        self._drivers: Drivers | None = None

    @property
    def runs_in_memory(self) -> int:
        """How many runs are held."""
        return 0 if self._drivers is None else len(self._drivers)

    @property
    def parked(self) -> dict[str, str]:
        """Runs that this code cannot drive -> why."""
        runs = () if self._drivers is None else (driver.run for driver in self._drivers)
        return {run.run_id: run.parked for run in runs if run.parked is not None}

    def hand_over(self) -> None:
        """Start nothing new; ``run`` returns once what runs has ended, or its time is up."""
        self._stopping.set()

    async def run(self) -> None:
        """Own the partition until ``hand_over`` or cancellation.

        Raises:
            LogUnrecoverable: The log is not what was recorded of it: the process has to stop.
        """
        failures = 0
        try:
            while not self._stopping.is_set():
                began = self._world.clock.elapsed()
                reason = await self._own_once()
                if is_cancelled():
                    # A task group whose child fails at the same moment drops the cancellation of its parent.
                    raise asyncio.CancelledError
                if reason is None:
                    return
                lasted = self._world.clock.elapsed() - began
                failures = 0 if lasted > _PEACE_S else failures + 1
                self._world.metrics.epoch_over(self._partition, reason)
                _log.warning("epoch_over", partition=self._partition, reason=reason, failures=failures)
                await sleep_unless(self._stopping, claim_backoff(failures, self._world.chance.jitter()))
        finally:
            self._world.metrics.partition_released(self._partition)

    # --- one epoch ----------------------------------------------------------------------------------------------

    async def _own_once(self) -> str | None:
        """Claim, take over, and drive. Gives why the epoch ended; None: the partition was handed over."""
        try:
            await self._inspect()
            epoch = await self._claim()
            async with asyncio.TaskGroup() as group:
                tenure = self._begin(epoch, group)
                self._tenure, self._drivers = tenure, Drivers(tenure, group)
                group.create_task(self._work(tenure, self._drivers, group), name=f"partition {self._partition}")
                await self._supervise(tenure, self._drivers)
        except EpochOver as over:
            return str(over)
        except ExceptionGroup as errors:
            return self._why(list(_leaves(errors)))
        finally:
            self.ready = False
            if self._tenure is not None:
                # What was requested and not yet started must not start any more.
                self._tenure.writer.end("the tenure is over")
                self._world.effects.detach(*self._tenure.place)
                self._tenure = self._drivers = None
        return None

    def _why(self, errors: list[Exception]) -> str | None:
        """Say why the tasks of a tenure ended; what no retry can mend is raised."""
        for error in errors:
            if isinstance(error, LogUnrecoverable):
                raise error
        for error in errors:
            if not isinstance(error, _HandedOver | EpochOver):
                # Kafka away, a defect: giving up would leave the partition to nobody.
                _log.error("tenure_failed", partition=self._partition, exc_info=error)
                return f"{type(error).__name__}: {error}"
        over = next((error for error in errors if isinstance(error, EpochOver)), None)
        return None if over is None else str(over)

    async def _inspect(self) -> None:
        """Look at log and inputs before the claim: on a truncated log, claims would make up for what is missing."""
        world = self._world

        async def look() -> None:
            row = await world.store.partition(self._partition)
            if row is not None:
                log = inspect(row, world.log, world.store, tail=False)  # the last record is looked at behind the claim
                await asyncio.gather(log, check_inputs(row, world.inputs))

        try:
            await persist(look, StoreUnavailable, world.chance, self._tell_away)
        except LogUnavailable as error:
            raise EpochOver(f"the log cannot be looked at: {error}") from error

    def _tell_away(self, error: Exception, failures: int) -> None:
        _log.warning("postgres_away", partition=self._partition, error=str(error), failures=failures)

    async def _claim(self) -> int:
        """Append a claim; its offset is the epoch."""
        world = self._world
        claim = PartitionClaimed(
            owner=world.settings.owner,
            revision=world.agents.revision,
            nonce=world.chance.nonce(),
            at=world.clock.now_ms(),
        )
        head, value = log_codec.encode(claim)
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_ack(result: int | AppendFailed) -> None:
            if acknowledged.done():
                return
            if isinstance(result, AppendFailed):
                acknowledged.set_exception(EpochOver(f"the claim failed: {result}"))
            else:
                acknowledged.set_result(result)

        world.log.append(self._partition, None, head, value, on_ack)
        epoch = await acknowledged
        self._own_epochs.add(epoch)
        world.metrics.partition_claimed(self._partition, epoch)
        _log.info("partition_claimed", partition=self._partition, epoch=epoch)
        return epoch

    def _begin(self, epoch: int, group: asyncio.TaskGroup) -> Tenure:
        def spawn(work: Coroutine[Any, Any, None]) -> object:
            try:
                return group.create_task(work)
            except RuntimeError:
                # The group is ending its tasks, and the epoch with them: nobody needs to know any more.
                work.close()
                return None

        world = self._world
        writer = EpochWriter(world.log, self._partition, epoch, world.clock, world.settings.max_record, spawn)
        return Tenure(
            world=world,
            partition=self._partition,
            writer=writer,
            claimed_at=world.clock.elapsed(),
            own_epochs=frozenset(self._own_epochs),
            positions=Positions(),
            horizon=Horizon(self._partition),
        )

    async def _supervise(self, tenure: Tenure, drivers: Drivers) -> None:
        """Wait for the end of the epoch or for the hand-over, whichever comes first; then end the group's tasks."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        ends: set[asyncio.Future[Any]] = {tenure.writer.over, stopping}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not tenure.writer.over.done():
                await self._drain(tenure, drivers)
            if tenure.writer.over.done():
                raise EpochOver(tenure.writer.over.result())
            raise _HandedOver
        finally:
            stopping.cancel()

    async def _drain(self, tenure: Tenure, drivers: Drivers) -> None:
        """Start nothing new, and let what runs end, for a bounded time."""
        tenure.draining = True
        clock = self._world.clock
        deadline = clock.elapsed() + self._world.settings.drain_s
        while not drivers.drained and clock.elapsed() < deadline and not tenure.writer.over.done():  # noqa: ASYNC110 - many parts make this up
            await asyncio.sleep(_DRAIN_POLL_S)
        _log.info("partition_drained", partition=self._partition, epoch=tenure.epoch, complete=drivers.drained)

    async def _work(self, tenure: Tenure, drivers: Drivers, group: asyncio.TaskGroup) -> None:
        """Take over, then read inputs until cancelled."""
        replay = await self._restore(tenure)
        tenure.positions = replay.fence.positions
        for run_id, loaded in replay.runs.items():
            if loaded.state is not None or loaded.parked is not None:
                drivers.begin(run_id, loaded)
        for run_id in self._world.effects.runs(self._partition):
            drivers.begin(run_id)
        self.ready = True
        seconds = round(tenure.since_claim(), 3)
        self._world.metrics.partition_restored(self._partition, len(drivers), seconds)
        _log.info(
            "partition_restored", partition=self._partition, epoch=tenure.epoch, runs=len(drivers), seconds=seconds
        )
        group.create_task(drivers.sweep(), name=f"sweep {self._partition}")
        group.create_task(self._look_behind(tenure), name=f"look behind {self._partition}")
        reader = await self._open_inputs(tenure)
        try:
            await take_inputs(tenure, drivers, reader)
        finally:
            await reader.close()

    async def _look_behind(self, tenure: Tenure) -> None:
        """Notice a claim that landed after the own one, even while there is nothing to append."""
        while True:
            await asyncio.sleep(self._world.settings.look_behind_every_s)
            known = tenure.writer.acknowledged_to
            try:
                bounds = await self._world.log.bounds(self._partition)
            except LogUnavailable as error:
                _log.warning("log_away", partition=self._partition, error=str(error))
                continue
            await tenure.writer.look_behind(bounds.end, known)

    async def _restore(self, tenure: Tenure) -> Replay:
        row, replay = await self._take_over(tenure.epoch)
        tenure.horizon.begin(row)
        if replay.set_aside:
            self._world.metrics.snapshots_set_aside(replay.set_aside)
        if row is not None and row.epoch > tenure.epoch:
            reason = f"Postgres knows epoch {row.epoch}, later than our claim at {tenure.epoch}: superseded"
            tenure.writer.end(reason)
            raise EpochOver(reason)
        return replay

    async def _take_over(self, epoch: int) -> tuple[PartitionRow | None, Replay]:
        world = self._world

        work = partial(take_over, self._partition, world.log, world.store, epoch)
        return await persist(work, StoreUnavailable, world.chance, self._tell_away)

    async def _open_inputs(self, tenure: Tenure) -> InputReader:
        topics = self._world.settings.topics
        starts = {topic: tenure.positions.of(topic).next for topic in topics.inputs}
        return await self._world.inputs.open(self._partition, starts)
