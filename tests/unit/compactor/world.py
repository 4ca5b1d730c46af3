"""A log written by hand, in-memory servers, and compactors on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.clock import SeededChance
from runfold.adapters.memory.inputs import MemoryInputs
from runfold.adapters.memory.log import MemoryLog
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.codec import log as log_codec
from runfold.core.events import Cause, InputSettled, LogRecordBody, PartitionClaimed, Settlement
from runfold.core.fence import HEADER, Fence, Head
from runfold.ports.publisher import Publisher
from runfold.ports.store import PartitionRow, StoredRun
from runfold.runtime.compactor import Compactor, CompactorSettings, PartitionStatus
from runfold.runtime.restore import Replay, restore
from tests.unit.core.building import Run, started


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        """Wall clock in milliseconds."""
        return int(self.seconds * 1000)

    def elapsed(self) -> float:
        """Seconds."""
        return self.seconds


class World:
    """One partition of one installation."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.broker = MemoryBroker(1, clock=self.clock)
        self.topics = self.broker.topics
        self.database = MemoryDatabase(self.clock)
        self.store = MemoryStore(self.database)
        self.blobs = MemoryBlobs()
        self.epoch = -1

    # --- the log ------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.broker.bounds(self.topics.log, 0)[1]

    def claim(self, owner: str = "owner") -> int:
        """Append a claim; gives its epoch."""
        self.epoch = self.append(PartitionClaimed(owner=owner, revision="r1", nonce="n", at=1))
        return self.epoch

    def append(self, record: LogRecordBody) -> int:
        """Append a record as it is; gives its offset."""
        head, value = log_codec.encode(record)
        return self.append_raw(head, log_codec.key_of(record), value)

    def append_raw(self, head: bytes | None, key: str | None, value: bytes) -> int:
        """Append bytes."""
        headers = () if head is None else ((HEADER, head),)
        return self.broker.append(self.topics.log, 0, None if key is None else key.encode(), value, headers)

    def garble(self, run: Run) -> int:
        """Append a valid event of a run in a schema that nobody knows."""
        head = Head.decode(log_codec.encode(run.next.interrupt())[0])
        return self.append_raw(Head(head.kind, self.epoch, head.seq).encode(), run.state.run_id, b"\xc3\x01unknown?")

    def begin(self, run_id: str, cause: Cause | None = None) -> Run:
        """Start a run and append its first event."""
        run = Run(replace(started(run_id=run_id), epoch=self.epoch, cause=cause))
        run.epoch = self.epoch
        self.append(run.events[0])
        return run

    def write(self, run: Run, after: int) -> list[int]:
        """Append the events of a run from number ``after`` on; gives their offsets."""
        return [self.append(event) for event in run.events[after:]]

    def gated(self, run_id: str) -> Run:
        """A run that waits for an approval, appended."""
        run = self.begin(run_id)
        run.turn("g")
        run.do(run.next.gate("g"))
        self.write(run, 1)
        return run

    def steps(self, run: Run, count: int) -> None:
        """Go on for ``count`` model calls, each followed by a tool call: five events a round; append them."""
        known = len(run.events)
        for _ in range(count):
            run.turn("look")
            run.do(run.next.request("look"))
            run.do(run.next.result("look"))
        self.write(run, known)

    def settle(self, offset: int, outcome: Settlement, reason: str | None = None) -> int:
        """Append the settling record of an input of ``approvals``."""
        cause = Cause(self.topics.approvals, 0, offset)
        return self.append(
            InputSettled(
                epoch=self.epoch, at=1, cause=cause, outcome=outcome, run_id="run", reason=reason, detail="look again"
            )
        )

    # --- compactors ---------------------------------------------------------------------------------------------

    def settings(self, **changes: Any) -> CompactorSettings:
        """Settings that never wait longer than they must."""
        quick = CompactorSettings(
            self.topics.dead, self.topics.notifications, linger_s=0.0, commit_every_s=0.0, poll_s=0.005
        )
        return replace(quick, **changes)

    def compactor(self, publisher: Publisher | None = None, **changes: Any) -> Compactor:
        """Make a compactor of another process."""
        return Compactor(
            log=MemoryLog(self.broker),
            store=MemoryStore(self.database),
            publisher=publisher or MemoryPublisher(self.broker),
            inputs=MemoryInputs(self.broker),
            blobs=self.blobs,
            clock=self.clock,
            chance=SeededChance(1),
            settings=self.settings(**changes),
        )

    @asynccontextmanager
    async def compacting(
        self,
        publisher: Publisher | None = None,
        **changes: Any,
    ) -> AsyncIterator[PartitionStatus]:
        """Run a compactor of partition 0; give its status."""
        compactor = self.compactor(publisher, **changes)
        await compactor.assigned([0])
        try:
            yield compactor.status()[0]
        finally:
            await compactor.close()

    async def compact(self, commits: int = 1, **changes: Any) -> PartitionStatus:
        """Run a compactor until it has applied the whole log and committed so often, and stop it."""
        async with self.compacting(**changes) as status:
            await until(lambda: status.stopped or (status.applied == self.end and status.commits >= commits))
        return status

    # --- what is there ------------------------------------------------------------------------------------------

    @property
    def row(self) -> PartitionRow:
        """The partition's row."""
        return self.database.partitions[0]

    async def stored(self, run_id: str) -> StoredRun:
        """What the store holds of a run."""
        return (await self.store.load_runs([run_id]))[run_id]

    async def restored(self) -> Replay:
        """Take over the partition at the log's end, as an executor does."""
        row, stored = await self.store.load_partition(0)
        assert row is not None
        replay = await restore(0, MemoryLog(self.broker), self.store, row, stored)
        await replay.read(row.applied, self.end)
        return replay

    def published(self, topic: str) -> list[Stored]:
        """All records of a topic."""
        return self.broker.slice(topic, 0, *self.broker.bounds(topic, 0))

    def notifications(self) -> list[dict[str, Any]]:
        """All notifications."""
        return [json.loads(stored.value or b"") for stored in self.published(self.topics.notifications)]


async def until(condition: Callable[[], bool]) -> None:
    """Let the others go on until a condition holds; five seconds at most."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is awaited is the state of another object, not an event
            await asyncio.sleep(0)


def valid_offsets(world: World) -> dict[str, list[int]]:
    """The offsets of each run's valid events, judged afresh from the log's beginning."""
    fence, found = Fence(), dict[str, list[int]]()
    for stored in world.published(world.topics.log):
        body = log_codec.decode(stored.value or b"")
        key = None if stored.key is None else stored.key.decode()
        judged = fence.admit(log_codec.head_of(body), stored.offset, key, getattr(body, "cause", None))
        if judged == "valid" and key is not None:
            found.setdefault(key, []).append(stored.offset)
    return found
