"""The compactor of one process: one task per partition that its group assigns to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from runfold.ports.blobs import Blobs
from runfold.ports.clock import Chance, Clock
from runfold.ports.inputs import Inputs
from runfold.ports.log import Log
from runfold.ports.publisher import Publisher
from runfold.ports.store import CompactorStore
from runfold.runtime.compactor.outbox import Outbox
from runfold.runtime.compactor.partition import PartitionCompactor
from runfold.runtime.compactor.settings import CompactorSettings, PartitionStatus


class Compactor:
    """An ``AssignmentListener`` of the compactors' own group, whose topic is the log.

    Two compactors of one partition do no harm: the store lets one of them commit, the other starts again.

    It owns its partitions' tasks from ``assigned`` on: each is awaited, and cancelled if it is late, by ``revoked``,
    ``lost`` or ``close``, whichever comes first, even when that is itself cancelled. A task raises nothing: what fails
    is logged and tried again, or shown in its status.
    """

    def __init__(  # noqa: PLR0913 - one per port
        self,
        *,
        log: Log,
        store: CompactorStore,
        publisher: Publisher,
        inputs: Inputs,
        blobs: Blobs,
        clock: Clock,
        chance: Chance,
        settings: CompactorSettings,
    ) -> None:
        self._log = log
        self._store = store
        self._outbox = Outbox(publisher, inputs, blobs, settings.notifications_topic, settings.dead_topic)
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._running: dict[int, tuple[PartitionCompactor, asyncio.Task[None]]] = {}

    def status(self) -> list[PartitionStatus]:
        """How each assigned partition fares, by its number."""
        return [self._running[partition][0].status for partition in sorted(self._running)]

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Start to compact them."""
        for partition in partitions:
            if partition in self._running:
                continue
            compactor = PartitionCompactor(
                partition,
                log=self._log,
                store=self._store,
                outbox=self._outbox,
                clock=self._clock,
                chance=self._chance,
                settings=self._settings,
            )
            task = asyncio.create_task(compactor.run(), name=f"compactor-{partition}")
            self._running[partition] = (compactor, task)

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Let each finish the batch in hand, for a bounded time."""
        await self._end(partitions, self._settings.drain_s)

    async def lost(self, partitions: Sequence[int]) -> None:
        """Stop at once: somebody else compacts them already."""
        await self._end(partitions, 0.0)

    async def close(self) -> None:
        """Let every partition finish the batch in hand."""
        await self._end(list(self._running), self._settings.drain_s)

    async def _end(self, partitions: Iterable[int], patience_s: float) -> None:
        ending = [self._running.pop(partition) for partition in partitions if partition in self._running]
        if not ending:
            return
        tasks = [task for _, task in ending]
        try:
            for compactor, _ in ending:
                compactor.stop()
            await asyncio.wait(tasks, timeout=patience_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
