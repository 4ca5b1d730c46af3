"""A reconciler on in-memory adapters: a clock that is set by hand, and queues that tell what it did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from runfold import Agent, App
from runfold.adapters.memory import MemoryBlobs, MemoryBroker, MemoryPublisher
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.codec.input_types import VerdictInput
from runfold.codec.inputs import parse_input
from runfold.codec.snapshots import FOLD_VERSION, encode_state
from runfold.core.events import Recovery, Version
from runfold.core.payload import Inline, Payload
from runfold.core.positions import Positions
from runfold.core.state import State, Status
from runfold.ports.publisher import Published, PublishFailed
from runfold.ports.store import (
    Commit,
    DueCall,
    OpenCallRow,
    PartitionRow,
    RunRow,
    SnapshotRow,
    StoreUnavailable,
)
from runfold.runtime.reconciler.reconciler import Reconciler
from runfold.runtime.reconciler.settings import ReconcilerSettings
from runfold.testing import ScriptedModel

EPOCH = 100
PATIENCE_S = 10.0


class ManualClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        """Give the wall clock."""
        return int(self.seconds * 1000)

    def elapsed(self) -> float:
        """Give the seconds set."""
        return self.seconds


class TellingStore(MemoryStore):
    """Tells what was postponed, (run_id, delay_s, tries), and when it could not be reached."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.postponed: asyncio.Queue[tuple[str, float, int]] = asyncio.Queue()
        self.refused: asyncio.Queue[None] = asyncio.Queue()
        self.hanging: asyncio.Event | None = None

    async def lease_due(self, holder: str, limit: int, grace_s: float, lease_s: float) -> list[DueCall]:
        """Lease; tell when that could not be done; while ``hanging``, no answer comes, and that is told."""
        if self.hanging is not None:
            self.hanging.set()
            await asyncio.Event().wait()
        try:
            return await super().lease_due(holder, limit, grace_s, lease_s)
        except StoreUnavailable:
            self.refused.put_nowait(None)
            raise

    async def postpone(self, call: OpenCallRow, holder: str, delay_s: float, tries: int) -> None:
        """Postpone, and tell."""
        await super().postpone(call, holder, delay_s, tries)
        self.postponed.put_nowait((call.run_id, delay_s, tries))


class TellingPublisher(MemoryPublisher):
    """Tells the verdicts; fails as often as it is told to."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.verdicts: asyncio.Queue[VerdictInput] = asyncio.Queue()
        self.failing = asyncio.Queue[None]()
        self.broken = False

    async def publish(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[tuple[str, bytes], ...] = (),
        partition: int | None = None,
    ) -> Published:
        """Publish, and tell what a receiver would read."""
        if self.broken:
            self.failing.put_nowait(None)
            message = f"{topic}: no broker"
            raise PublishFailed(message)
        published = await super().publish(topic, key, value, headers=headers, partition=partition)
        verdict = parse_input("control", key, value)
        assert isinstance(verdict, VerdictInput)
        assert topic == "runfold.control"
        self.verdicts.put_nowait(verdict)
        return published


@dataclass
class World:
    """Everything outside the reconciler."""

    tools: Sequence[Callable[..., Any]]
    clock: ManualClock = field(default_factory=ManualClock)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(4, clock=self.clock)
        self.publisher = TellingPublisher(self.broker)
        self.database = MemoryDatabase(self.clock)
        self.store = TellingStore(self.database)
        self.settings = ReconcilerSettings("host:1", scan_s=0.005, lookup_timeout_s=5.0)

    @asynccontextmanager
    async def reconciling(self, holder: str = "host:1", **changed: Any) -> AsyncIterator[Reconciler]:
        """Run a reconciler; it is closed at the end, and its failure is the test's."""
        app = App([Agent("one", model=ScriptedModel([]), instructions="", tools=self.tools)])
        settings = replace(self.settings, holder=holder, **changed)
        async with app.running("reconciler", revision="r1") as agents:
            one = Reconciler(self.store, self.publisher, self.blobs, agents, self.clock, settings)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(one.run())
                yield one
                await one.close()
                running.cancel()

    async def open_call(  # noqa: PLR0913 - what a test may want otherwise
        self,
        run_id: str,
        tool: str = "create",
        *,
        recovery: Recovery = Recovery.LOOKUP,
        arguments: Payload | None = None,
        attempt: int = 1,
        owner_gone: bool = True,
        agent: str = "one",
        values: Mapping[str, Payload] | None = None,
    ) -> None:
        """Let the compactor have written one open call of step 18, with a time-out of 10 s."""
        call = OpenCallRow(
            run_id=run_id,
            step=18,
            partition=0,
            agent=agent,
            tool=tool,
            tool_call_id="call-1",
            arguments=arguments or Inline(b'{"title":"x"}'),
            attempt=attempt,
            epoch=EPOCH - 50 if owner_gone else EPOCH,
            recovery=recovery,
            timeout_ms=10_000,
        )
        commit = Commit(self._row(), runs=[run_row(run_id)], opened_calls=[call])
        if values is not None:
            commit.snapshots.append(snapshot(run_id, values))
        await self.store.commit(commit)

    async def close_call(self, run_id: str) -> None:
        """Let the compactor have seen its result."""
        await self.store.commit(Commit(self._row(), closed_calls=[(run_id, 18)]))

    async def verdict(self) -> VerdictInput:
        """Wait for the next verdict."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.publisher.verdicts.get()

    async def postponed(self) -> tuple[str, float, int]:
        """Wait for the next postponement."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.store.postponed.get()

    def _row(self) -> PartitionRow:
        known = self.database.partitions.get(0)
        version = 0 if known is None else known.version
        return PartitionRow(0, version, "memory", "runfold.log", 200, EPOCH, 200, EPOCH, Positions())


def run_row(run_id: str) -> RunRow:
    """Make the row of a running run."""
    return RunRow(
        run_id=run_id,
        partition=0,
        agent="one",
        status=Status.RUNNING,
        step=18,
        seq=40,
        version=Version(),
        usage={},
        cost_nano_usd=None,
        unpriced_calls=0,
        unaccounted_calls=0,
        first_offset=1,
        first_epoch=0,
        last_offset=199,
        started_at=0,
        updated_at=0,
    )


def snapshot(run_id: str, values: Mapping[str, Payload]) -> SnapshotRow:
    """Make a snapshot that holds the author's state."""
    state = State(run_id, "one", Inline(b"null"), Version(), 0, seq=40, step=18, values=dict(values))
    data, digest = encode_state(state)
    return SnapshotRow(run_id, 40, 199, None, None, FOLD_VERSION, 0, data, digest)
