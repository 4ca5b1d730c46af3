"""The step executor: owns the partitions that its consumer group assigns to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from runfold.ports.agents import Agents
from runfold.ports.blobs import Blobs
from runfold.ports.clock import Chance, Clock
from runfold.ports.drains import Drains
from runfold.ports.inputs import Inputs
from runfold.ports.log import Log
from runfold.ports.membership import Membership
from runfold.ports.publisher import Publisher
from runfold.ports.store import Snapshots
from runfold.runtime.executor.effects import Effects
from runfold.runtime.executor.handover import HandOver
from runfold.runtime.executor.loader import RunLoader
from runfold.runtime.executor.metrics import ExecutorMetrics, NoMetrics
from runfold.runtime.executor.orphans import Orphans
from runfold.runtime.executor.partition import PartitionOwner
from runfold.runtime.executor.settings import ExecutorSettings
from runfold.runtime.executor.suspects import Suspects
from runfold.runtime.executor.tenure import World
from runfold.runtime.payloads import Payloads

_log = structlog.get_logger(__name__)


class Executor:
    """One process's worth of step execution; an ``AssignmentListener``.

    Args:
        log, inputs, publisher, store, blobs, agents, clock, chance: The ports.
        drains: Lets the group move what is slow to drain; None: everything is drained before it is let go.
    """

    def __init__(  # noqa: PLR0913 - one per port
        self,
        *,
        log: Log,
        inputs: Inputs,
        publisher: Publisher,
        store: Snapshots,
        blobs: Blobs,
        agents: Agents,
        clock: Clock,
        chance: Chance,
        settings: ExecutorSettings,
        drains: Drains | None = None,
        metrics: ExecutorMetrics | None = None,
    ) -> None:
        self._log = log
        self._inputs = inputs
        self._publisher = publisher
        self._store = store
        self._agents = agents
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._metrics = metrics or NoMetrics()
        self._payloads = Payloads(blobs, chance, settings.inline_limit)
        self._drains = drains
        self._world: World | None = None
        self._hand_over: HandOver | None = None
        self._group: asyncio.TaskGroup | None = None
        self._owners: dict[int, tuple[PartitionOwner, asyncio.Task[None]]] = {}
        self._own_epochs: dict[int, set[int]] = {}
        self._assigned_once = False

    @property
    def ready(self) -> bool:
        """Whether the group has assigned something (or nothing) and every take-over is done."""
        return self._assigned_once and all(owner.ready for owner, _ in self._owners.values())

    @property
    def runs_in_memory(self) -> int:
        """How many runs this process holds."""
        return sum(owner.runs_in_memory for owner, _ in self._owners.values())

    @property
    def parked(self) -> dict[str, str]:
        """Runs that this code cannot drive -> why."""
        return {run_id: why for owner, _ in self._owners.values() for run_id, why in owner.parked.items()}

    async def run(self, membership: Membership) -> None:
        """Join the group and work until ``membership.leave`` is called.

        Raises:
            ExceptionGroup: Of LogUnrecoverable and the like: the process has to stop, and says why.
        """
        async with asyncio.TaskGroup() as group:
            loader = RunLoader(self._store, self._chance, self._metrics)
            self._group = group
            self._hand_over = hand_over = HandOver(self._drains, self._clock, self._settings, group)
            suspects = Suspects()
            async with asyncio.TaskGroup() as effects:
                self._world = World(
                    log=self._log,
                    inputs=self._inputs,
                    publisher=self._publisher,
                    store=self._store,
                    agents=self._agents,
                    payloads=self._payloads,
                    loader=loader,
                    effects=Effects(effects, suspects.ended),
                    suspects=suspects,
                    clock=self._clock,
                    chance=self._chance,
                    settings=self._settings,
                    metrics=self._metrics,
                )
                serving = group.create_task(loader.serve(), name="loader")
                orphans = Orphans(self._world.effects, self._publisher, self._settings, self._owners.__contains__)
                telling = group.create_task(orphans.serve(), name="orphans")
                try:
                    await membership.run(self)
                    await hand_over.finish()
                finally:
                    serving.cancel()
                    telling.cancel()
                    self._abandon(list(self._owners))
                    self._world.effects.cancel()

    # --- AssignmentListener -------------------------------------------------------------------------------------

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Own these from now on."""
        self._assigned_once = True
        if self._world is None or self._group is None or self._hand_over is None:
            raise RuntimeError("assigned before run")
        marks = self._hand_over.look(partitions)
        for partition in partitions:
            self._abandon([partition])
            owner = PartitionOwner(self._world, partition, self._own_epochs.setdefault(partition, set()))
            owning = self._own(self._hand_over, partition, marks, owner)
            task = self._group.create_task(owning, name=f"owner {partition}")
            self._owners[partition] = (owner, task)
        if partitions:
            _log.info("partitions_assigned", partitions=sorted(partitions))

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Hand these over: drain, then let go."""
        leaving = {partition: self._owners.pop(partition) for partition in partitions if partition in self._owners}
        if leaving and self._hand_over is not None:
            await self._hand_over.let_go(leaving)
            _log.info("partitions_revoked", partitions=sorted(partitions))

    async def lost(self, partitions: Sequence[int]) -> None:
        """These are elsewhere already."""
        self._abandon(partitions)
        if partitions:
            _log.warning("partitions_lost", partitions=sorted(partitions))

    @staticmethod
    async def _own(
        hand_over: HandOver, partition: int, marks: asyncio.Task[dict[int, str]], owner: PartitionOwner
    ) -> None:
        """Own a partition once the process that had it before has drained it."""
        await hand_over.await_drained(partition, marks)
        await owner.run()

    def _abandon(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            owned = self._owners.pop(partition, None)
            if owned is not None:
                owned[1].cancel()
