"""One process's ownership of one partition in one epoch, and everything that lives only as long as that."""

from __future__ import annotations

from dataclasses import dataclass

from runfold.codec import log as log_codec
from runfold.core.drafts import Stamp
from runfold.core.events import Cause, InputSettled, Settlement
from runfold.core.fence import Fence
from runfold.core.positions import Positions
from runfold.ports.agents import Agents
from runfold.ports.clock import Chance, Clock
from runfold.ports.inputs import Inputs
from runfold.ports.log import Log
from runfold.ports.publisher import Publisher
from runfold.ports.store import Snapshots, StoredRun
from runfold.runtime.executor.effects import Effects
from runfold.runtime.executor.horizon import Horizon
from runfold.runtime.executor.loader import RunLoader
from runfold.runtime.executor.metrics import ExecutorMetrics
from runfold.runtime.executor.settings import ExecutorSettings
from runfold.runtime.executor.suspects import Suspects
from runfold.runtime.executor.writer import EpochOver, EpochWriter
from runfold.runtime.payloads import Payloads
from runfold.runtime.restore import Loaded, Replay


@dataclass(frozen=True, slots=True)
class World:
    """What all tenures of a process share: the ports, and what was built on them once."""

    log: Log
    inputs: Inputs
    publisher: Publisher
    store: Snapshots
    agents: Agents
    payloads: Payloads
    loader: RunLoader
    effects: Effects
    suspects: Suspects
    clock: Clock
    chance: Chance
    settings: ExecutorSettings
    metrics: ExecutorMetrics


@dataclass(slots=True)
class Tenure:
    """One partition in one epoch.

    Attributes:
        claimed_at: When the claim was acknowledged, in seconds of ``Clock.elapsed``.
        own_epochs: Epochs that this process has claimed here: a request of one of them that is no known effect was
            never performed.
        positions: Inputs settled by acknowledged records.
        horizon: Which answers of Postgres may be believed.
        draining: Start nothing new; outcomes are still appended.
    """

    world: World
    partition: int
    writer: EpochWriter
    claimed_at: float
    own_epochs: frozenset[int]
    positions: Positions
    horizon: Horizon
    draining: bool = False

    @property
    def epoch(self) -> int:
        """Offset of the claim."""
        return self.writer.epoch

    @property
    def place(self) -> tuple[int, int]:
        """Partition and epoch."""
        return (self.partition, self.epoch)

    def stamp(self, cause: Cause | None = None) -> Stamp:
        """The facts of this moment."""
        return Stamp(self.epoch, self.world.clock.now_ms(), cause)

    def since_claim(self) -> float:
        """Seconds since the claim was acknowledged."""
        return self.world.clock.elapsed() - self.claimed_at

    def settled(
        self, cause: Cause, outcome: Settlement, run_id: str | None, why: tuple[str, str] | None
    ) -> InputSettled:
        """The record of an input that causes no event; ``why``: the reason and what to tell a person."""
        reason, detail = why or (None, None)
        return InputSettled(
            epoch=self.epoch,
            at=self.world.clock.now_ms(),
            cause=cause,
            outcome=outcome,
            run_id=run_id,
            reason=reason,
            detail=detail,
        )

    async def settle(self, *records: InputSettled) -> None:
        """Append them, and take note once they are durable.

        Raises:
            EpochOver: See there.
        """
        await self.writer.append([(None, *log_codec.encode(record)) for record in records])
        for record in records:
            self.positions.settle(record.cause.topic, record.cause.offset)
            self.world.metrics.input_settled(record.outcome)

    async def load(self, stored: StoredRun) -> Loaded:
        """Decode a run that is not in memory.

        Raises:
            EpochOver: It was written to in a later epoch: somebody else owns the partition.
        """
        replay = Replay(self.partition, self.world.log, self.world.store, Fence(self.epoch))
        await replay.adopt([stored], None)
        if replay.set_aside:
            self.world.metrics.snapshots_set_aside(replay.set_aside)
        loaded = replay.runs[stored.run_id]
        if loaded.state is not None and loaded.state.epoch > self.epoch:
            reason = f"run {stored.run_id} was written to in epoch {loaded.state.epoch}, after ours ({self.epoch})"
            self.writer.end(reason)
            raise EpochOver(reason)
        return loaded
