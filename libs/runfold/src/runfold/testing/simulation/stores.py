"""The clients of Postgres and of the object store, as the real ones fail."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.effects import CommitFate, MemoryEffects, MemoryEffectsDatabase
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.core.payload import BlobRef
from runfold.core.positions import Positions
from runfold.ports.agents import Begun, Returned
from runfold.ports.blobs import BlobsUnavailable
from runfold.ports.effects import Effect, EffectsUnavailable, Work
from runfold.ports.store import (
    Commit,
    DueCall,
    OpenCallRow,
    PartitionRow,
    StaleCompactor,
    StoredRun,
    StoreUnavailable,
)
from runfold.testing.simulation.loop import Condition, Process
from runfold.testing.simulation.trace import Trace
from runfold.testing.simulation.weather import Weather

_WORLD = contextvars.Context()
_LATE_S = (0.05, 1.0, 15.0)
_LOCK_POLL_S = 0.1
_LOCK_TRIES = 100


class FlakyStore(MemoryStore):
    """Postgres that takes its time, and whose transactions fail: rolled back, or committed all the same, or later.

    A transaction that lands later is one whose COMMIT was in the server's socket when the client lost it.
    """

    def __init__(self, database: MemoryDatabase, weather: Weather, trace: Trace | None = None) -> None:
        super().__init__(database)
        self._weather = weather
        self._trace = trace

    async def _lag(self) -> None:
        if not self._database.available:
            await asyncio.sleep(0.1)
        await self._weather.lag(self._weather.store_delay)

    async def load_partition(
        self, partition: int, also: Collection[str] = ()
    ) -> tuple[PartitionRow | None, list[StoredRun]]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().load_partition(partition, also)
        await self._lag()
        return answer

    async def load_runs(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().load_runs(run_ids)
        await self._lag()
        return answer

    async def covered(self, seqs: Mapping[str, int]) -> set[str]:
        """Read late, answer late."""
        await self._lag()
        answer = await super().covered(seqs)
        await self._lag()
        return answer

    async def partition(self, partition: int) -> PartitionRow | None:
        """Read late."""
        await self._lag()
        return await super().partition(partition)

    async def commit(self, commit: Commit) -> PartitionRow:
        """Write late, answer late; or fail, and have written or not."""
        await self._lag()
        weather = self._weather
        if weather.is_over:
            raise StoreUnavailable("the simulation is over")
        failing = weather.strikes(weather.commit_failures, "commit")
        fate = weather.chance.choice(["rolled back", "unknown", "later"]) if failing else "ok"
        await self._lock(commit.row.partition)
        self._say(commit, fate)
        if fate == "rolled back":
            raise StoreUnavailable("the transaction was rolled back")
        if fate == "later":
            late = weather.chance.random() * weather.chance.choice(_LATE_S)
            sent = replace(commit, row=replace(commit.row, positions=_copied(commit.row.positions)))
            asyncio.get_running_loop().call_later(late, self._land, sent, context=_WORLD)
            raise StoreUnavailable("the connection was lost in COMMIT, which nobody has seen yet")
        row = await super().commit(commit)
        await self._lag()
        if fate == "unknown":
            raise StoreUnavailable("the connection was lost behind COMMIT")
        return row

    async def _lock(self, partition: int) -> None:
        """Lock the partition's row, and be in the transaction for a while: whoever sleeps here keeps others waiting.

        The server frees the row of a client that is dead, and not that of one that sleeps.
        """
        weather, process = self._weather, Process.current()
        if process is None or not weather.is_bad or not weather.store_delay:
            return
        for _ in range(_LOCK_TRIES):
            holder = weather.locks.get(partition)
            if holder is None or holder.condition is Condition.DEAD or not weather.is_bad:
                break
            await asyncio.sleep(_LOCK_POLL_S)
        else:
            raise StoreUnavailable("lock timeout: another transaction holds the partition's row")
        weather.locks[partition] = process
        try:
            await self._lag()
        finally:
            weather.locks.pop(partition, None)

    def _land(self, commit: Commit) -> None:
        """The server finds the COMMIT of a client that is gone."""
        try:
            # Nothing awaits in it: it is done in one go.
            MemoryStore(self._database).commit(commit).send(None)
        except StopIteration:
            self._say(commit, "landed later")
        except (StaleCompactor, StoreUnavailable) as error:
            self._say(commit, f"fell: {error}")

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """Lease late; at times the answer is lost."""
        await self._lag()
        due = await super().lease_due(holder, limit, grace_s, lease_s)
        if self._weather.strikes(self._weather.commit_failures, "commit"):
            raise StoreUnavailable("the connection was lost behind COMMIT")
        return due

    async def postpone(self, call: OpenCallRow, holder: str, delay_s: float, tries: int) -> None:
        """Postpone late, or not at all."""
        await self._lag()
        if self._weather.strikes(self._weather.commit_failures, "commit"):
            raise StoreUnavailable("the transaction was rolled back")
        await super().postpone(call, holder, delay_s, tries)

    def _say(self, commit: Commit, fate: str) -> None:
        if self._trace is not None:
            row = commit.row
            snapshots = [f"{snapshot.run_id}@{snapshot.seq}" for snapshot in commit.snapshots]
            said = f"commit of partition {row.partition}: applied {row.applied}, version {row.version}, {fate}"
            self._trace.say(f"{said}, snapshots {snapshots}", None if Process.current() else "postgres")


def _copied(positions: Positions) -> Positions:
    return Positions.from_json(positions.to_json())


class FlakyEffects(MemoryEffects):
    """The effects table, which takes its time, and whose answers are lost at times."""

    def __init__(self, database: MemoryEffectsDatabase, weather: Weather) -> None:
        super().__init__(database)
        self._weather = weather
        database.fate = self._fate

    def _fate(self, _: Effect) -> CommitFate:
        weather = self._weather
        if weather.is_over:
            return "lost"
        fates: tuple[CommitFate, ...] = ("unanswered", "lost")
        return weather.chance.choice(fates) if weather.strikes(weather.commit_failures, "commit") else "answered"

    async def _lag(self) -> None:
        await self._weather.lag(self._weather.store_delay)

    def _lose(self) -> None:
        if self._weather.strikes(self._weather.commit_failures, "commit"):
            raise EffectsUnavailable("the answer was lost")

    async def perform(self, effect: Effect, wait_s: float, hold_s: float, work: Work) -> Returned | Begun:
        """Execute late."""
        await self._lag()
        return await super().perform(effect, wait_s, hold_s, work)

    async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
        """Claim late; at times the answer is lost."""
        await self._lag()
        claimed = await super().claim(effect, absent_upto, holder)
        self._lose()
        await self._lag()
        return claimed

    async def release(self, effect: Effect, holder: str) -> None:
        """Release late, or not."""
        await self._lag()
        self._lose()
        await super().release(effect, holder)

    async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
        """Record late, or not."""
        await self._lag()
        self._lose()
        await super().record(effect, holder, returned)

    async def find(self, run_id: str, step: int) -> Returned | Begun | None:
        """Read late, answer late."""
        await self._lag()
        found = await super().find(run_id, step)
        await self._lag()
        return found

    async def close(self, effect: Effect, returned: Returned, wait_s: float) -> Returned | Begun:
        """Close late; at times the answer is lost."""
        await self._lag()
        stored = await super().close(effect, returned, wait_s)
        self._lose()
        return stored


class FlakyBlobs(MemoryBlobs):
    """An object store that is away at times, or slow, or fails behind its work."""

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self._weather = weather

    async def put(self, data: bytes) -> BlobRef:
        """Store bytes, unless the store is away."""
        await self._reach()
        ref = await super().put(data)
        self._fail()
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """Read bytes back, unless the store is away."""
        await self._reach()
        self._fail()
        return await super().get(ref)

    async def _reach(self) -> None:
        if self._weather.blob_failures:
            await self._weather.lag(1.0)
        if self._weather.blobs_away:
            raise BlobsUnavailable("the object store is away")

    def _fail(self) -> None:
        if self._weather.strikes(self._weather.blob_failures, "blobs"):
            raise BlobsUnavailable("the object store reset the connection")
