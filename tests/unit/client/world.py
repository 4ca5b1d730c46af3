"""A small world for the client: an in-memory Kafka and Postgres, and a writer of log records."""

from __future__ import annotations

from runfold.adapters.memory import (
    LoopClock,
    MemoryBlobs,
    MemoryBroker,
    MemoryDeadLetters,
    MemoryLog,
    MemoryPublisher,
)
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.client import Client
from runfold.codec.log import encode, key_of
from runfold.core.events import (
    Cause,
    InputSettled,
    LogRecordBody,
    ModelCallRequested,
    PartitionClaimed,
    RunCompleted,
    RunStarted,
    Settlement,
    Version,
    Why,
)
from runfold.core.fence import HEADER
from runfold.core.partitioning import partition_of
from runfold.core.payload import Payload, inline_json
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.core.transitions import fold
from runfold.ports.publisher import Published
from runfold.ports.store import Commit, PartitionRow, RunRow
from runfold.ports.topics import Topics

PARTITIONS = 3
RUN = "run-8c1"
VERSION = Version(revision="r1", prompt_hash="p1", tools_hash="t1", model="test:m")


class World:
    """One installation in memory."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(PARTITIONS)
        self.database = MemoryDatabase(LoopClock())
        self.store = MemoryStore(self.database)
        self.blobs = MemoryBlobs()
        self.topics = Topics()
        self.client = Client(
            log=MemoryLog(self.broker),
            publisher=MemoryPublisher(self.broker),
            queries=self.store,
            blobs=self.blobs,
            dead=MemoryDeadLetters(self.broker),
            topics=self.topics,
            partitions=PARTITIONS,
        )
        self.partition = partition_of(RUN, PARTITIONS)

    def write(self, record: LogRecordBody) -> int:
        """Append a record to the partition of ``RUN``, valid or not; gives its offset."""
        head, value = encode(record)
        key = key_of(record)
        encoded = None if key is None else key.encode()
        return self.broker.append(self.topics.log, self.partition, encoded, value, ((HEADER, head),))

    def claim(self) -> int:
        """Append a claim; gives its epoch."""
        return self.write(PartitionClaimed(owner="x", revision="r1", nonce="n", at=1))

    async def compacted(
        self, *, first_epoch: int, seq: int, last: int, epoch: int, status: Status, parked_until: int | None = None
    ) -> None:
        """Say what the compactor would have written once it has applied everything up to ``last``.

        ``parked_until``: the run is parked behind ``last``, and everything up to this offset is applied.
        """
        applied = (last if parked_until is None else parked_until) + 1
        known = await self.store.partition(self.partition)
        row = PartitionRow(
            partition=self.partition,
            version=0 if known is None else known.version,
            cluster_id="memory",
            topic_id=self.topics.log,
            applied=applied,
            epoch=epoch,
            replay_from=applied,
            replay_epoch=epoch,
            positions=Positions(),
        )
        run = RunRow(
            run_id=RUN,
            partition=self.partition,
            agent="research",
            status=status,
            step=1,
            seq=seq,
            version=VERSION,
            usage={},
            cost_nano_usd=0,
            unpriced_calls=0,
            unaccounted_calls=0,
            first_offset=first_epoch + 1,
            first_epoch=first_epoch,
            last_offset=last,
            started_at=1,
            updated_at=2,
            parked=None if parked_until is None else "cannot be folded",
        )
        await self.store.commit(Commit(row, runs=[run]))


def started(
    epoch: int, *, run_id: str = RUN, question: Payload | None = None, cause: Cause | None = None
) -> RunStarted:
    """Make a run's first event."""
    return RunStarted(
        run_id=run_id,
        seq=0,
        epoch=epoch,
        at=1_700_000_000_000,
        cause=cause,
        agent="research",
        input=question or inline_json("What is new?"),
        version=VERSION,
        first_message=inline_json("What is new?"),
    )


def asked(epoch: int, seq: int = 1, attempt: int = 1) -> ModelCallRequested:
    """Make a model call's request."""
    return ModelCallRequested(
        run_id=RUN,
        seq=seq,
        epoch=epoch,
        at=1_700_000_000_001,
        step=1,
        attempt=attempt,
        why=Why.FIRST if attempt == 1 else Why.TAKEOVER,
        messages_hash=fold(None, started(0)).messages_hash.hex(),
        message_count=1,
        params=inline_json({}),
    )


def completed(epoch: int, seq: int, output: Payload | None = None) -> RunCompleted:
    """Make an end."""
    return RunCompleted(run_id=RUN, seq=seq, epoch=epoch, at=1_700_000_000_002, output=output or inline_json("done"))


def settled(epoch: int, published: Published, outcome: Settlement, reason: str | None = None) -> InputSettled:
    """Make the record of an input without an event."""
    cause = Cause(published.topic, published.partition, published.offset)
    return InputSettled(epoch=epoch, at=1, cause=cause, outcome=outcome, run_id=RUN, reason=reason, detail=reason)
