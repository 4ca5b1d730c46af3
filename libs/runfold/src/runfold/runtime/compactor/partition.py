"""One partition: fresh read, restore, then batch after batch: fold, publish, commit."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from runfold.core.policy import backoff
from runfold.ports.blobs import BlobsUnavailable
from runfold.ports.clock import Chance, Clock
from runfold.ports.log import Log, LogFollower, LogRecord, LogUnrecoverable
from runfold.ports.publisher import PublishFailed
from runfold.ports.store import CompactorStore, StaleCompactor, StoreUnavailable
from runfold.runtime.compactor.memory import Memory
from runfold.runtime.compactor.outbox import Outbox
from runfold.runtime.compactor.settings import CompactorSettings, PartitionStatus
from runfold.runtime.identity import check_inputs, digest_of
from runfold.runtime.resting import sleep_unless
from runfold.runtime.restore import nothing_stored, refuse_unknown, restore

_log = structlog.get_logger(__name__)


class PartitionCompactor:
    """Compacts one partition until it is stopped.

    Attributes:
        status: How it fares.
    """

    def __init__(
        self,
        partition: int,
        *,
        log: Log,
        store: CompactorStore,
        outbox: Outbox,
        clock: Clock,
        chance: Chance,
        settings: CompactorSettings,
    ) -> None:
        self.status = PartitionStatus(partition)
        self._partition = partition
        self._log = log
        self._store = store
        self._outbox = outbox
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._stopping = asyncio.Event()
        self._next_commit_at = float("-inf")

    def stop(self) -> None:
        """Finish the batch in hand, then let ``run`` return."""
        self._stopping.set()

    async def run(self) -> None:
        """Compact; whatever fails, memory is dropped and the next try starts from a fresh read.

        Returns when it is stopped, or when the log is not what was recorded of it: ``status.stopped`` says so.
        """
        while not self._stopping.is_set():
            try:
                await self._compact()
            except LogUnrecoverable as error:
                self.status.stopped, self.status.problem = True, str(error)
                _log.error("partition_stopped", partition=self._partition, error=str(error))
                return
            except (StaleCompactor, StoreUnavailable, PublishFailed, BlobsUnavailable) as error:
                _log.warning("compactor_restarts", partition=self._partition, error=str(error))
                await self._back_off(error)
            except Exception as error:  # noqa: BLE001 - the task's outermost frame: logged, counted, shown
                # A defect, or an error that no port names: loud, and no reason to give up the partition for ever.
                _log.exception("compactor_failed", partition=self._partition)
                await self._back_off(error)

    async def _back_off(self, error: Exception) -> None:
        self.status.problem = f"{type(error).__name__}: {error}"
        delay = 0.05 + backoff(0.2, self.status.failures, 10.0, self._chance.jitter())
        self.status.failures += 1
        await sleep_unless(self._stopping, delay)

    async def _compact(self) -> None:
        memory = await self._restore()
        follower = await self._log.follow(self._partition, memory.row.applied)
        try:
            pending: list[LogRecord] = []
            looked_at = self._clock.elapsed()
            while not self._stopping.is_set():
                if not pending:
                    pending = await self._next(follower, memory)
                batch = _head(pending, self._settings.batch_bytes)
                pending = pending[len(batch) :]
                if batch or memory.has_work(self._clock.elapsed()):
                    await self._advance(memory, batch)
                    looked_at = self._clock.elapsed()
                elif self._clock.elapsed() - looked_at >= self._settings.look_every_s:
                    await self._look_at_row(memory)
                    looked_at = self._clock.elapsed()
        finally:
            await follower.close()

    async def _look_at_row(self, memory: Memory) -> None:
        """Notice a restored database even while the log brings nothing to commit: executors wait for what it lost."""
        row = await self._store.partition(self._partition)
        found = 0 if row is None else row.version
        if found != memory.row.version:
            message = f"partition {self._partition} is at version {found}, expected {memory.row.version}"
            raise StaleCompactor(message)

    async def _restore(self) -> Memory:
        row, stored = await self._store.load_partition(self._partition)
        if row is None:
            row = await nothing_stored(self._partition, self._log)
        replay = await restore(self._partition, self._log, self._store, row, stored)
        row = replace(row, input_ids=await check_inputs(row, self._outbox.inputs))
        self.status.set_aside += replay.set_aside
        if replay.fence.epoch != row.epoch:
            message = (
                f"log partition {self._partition}: epoch {row.epoch} was in force at {row.applied}, now it is "
                f"{replay.fence.epoch}: the log was changed below what was applied. Restore the topic from a backup, "
                f"or accept the loss: `runfold rebuild --partition {self._partition} --accept-loss` (docs/disaster.md)."
            )
            raise LogUnrecoverable(message)
        self.status.applied, self.status.epoch, self.status.problem = row.applied, row.epoch, None
        _log.info(
            "partition_restored",
            partition=self._partition,
            epoch=row.epoch,
            applied=row.applied,
            replay_from=row.replay_from,
            runs=len(replay.runs),
        )
        return Memory(row, replay, self._settings, self._clock.elapsed())

    async def _next(self, follower: LogFollower, memory: Memory) -> list[LogRecord]:
        """Wait for records, and a little longer for more of them."""
        limit = self._settings.batch_records
        patience = 0.0 if memory.has_work(self._clock.elapsed()) else self._settings.poll_s
        records = await follower.next(limit, patience)
        if records and len(records) < limit:
            await sleep_unless(
                self._stopping, max(self._settings.linger_s, self._next_commit_at - self._clock.elapsed())
            )
            records += await follower.next(limit - len(records), 0.0)
        if len(records) >= limit:
            self.status.end = (await self._log.bounds(self._partition)).end
        return records

    async def _advance(self, memory: Memory, records: list[LogRecord]) -> None:
        """Fold a batch, publish what it causes, commit what it changes."""
        void, set_aside = memory.replay.fence.void, memory.replay.set_aside
        items = await memory.replay.apply(records) if records else []
        refuse_unknown(self._partition, items)
        applied = records[-1].offset + 1 if records else memory.row.applied
        tail = (records[-1].offset, digest_of(records[-1])) if records else None
        began = self._clock.elapsed()
        commit = memory.commit(applied, items, began, tail)
        sent = await self._outbox.publish(items)
        memory.committed(await self._store.commit(commit), commit)
        self._next_commit_at = began + self._interval(self._clock.elapsed() - began)
        status = self.status
        status.applied, status.epoch, status.end = applied, commit.row.epoch, max(status.end, applied)
        status.void += memory.replay.fence.void - void
        status.set_aside += memory.replay.set_aside - set_aside
        status.parked = memory.parked
        status.commits += 1
        status.snapshots += len(commit.snapshots)
        status.notifications += sent.notifications
        status.dead += sent.dead
        status.failures, status.problem = 0, None

    def _interval(self, took: float) -> float:
        """Seconds from the beginning of a commit that took so long to the beginning of the next."""
        settings = self._settings
        return max(settings.commit_every_s, min(took / settings.commit_share, settings.commit_interval_max_s))


def _head(records: list[LogRecord], limit: int) -> list[LogRecord]:
    """Give the first records, of ``limit`` bytes together, but at least one."""
    size = 0
    for index, record in enumerate(records):
        size += len(record.value)
        if size > limit and index:
            return records[:index]
    return records
