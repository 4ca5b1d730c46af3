"""What the log says, by the one rule of validity: the judge's own reading, apart from any process of the system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from runfold.adapters.memory.broker import MemoryBroker
from runfold.codec import log as log_codec
from runfold.core.errors import IllegalTransition
from runfold.core.events import Event, InputSettled, LogRecordBody, PartitionClaimed, RunEvent
from runfold.core.fence import Fence, Head, Judgement
from runfold.core.partitioning import partition_of
from runfold.core.state import State
from runfold.core.transitions import fold

EventT = TypeVar("EventT", bound=RunEvent)


@dataclass(slots=True)
class PartitionHistory:
    """One partition of the log, judged up to ``end`` (the offset of the next record to judge).

    Attributes:
        records: (offset, body) of the valid records, claims left out.
        states: Every run, folded from its valid events.
        owners: Epoch -> who claimed it.
        landed_ms: Offset -> when it came to stand there, by the broker's clock; as far as that was told.
        illegal: Valid events that do not follow from those before; they are left out of the states.
    """

    partition: int
    end: int = 0
    fence: Fence = field(default_factory=Fence)
    records: list[tuple[int, Event | InputSettled]] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    landed_ms: dict[int, int] = field(default_factory=dict)
    illegal: list[str] = field(default_factory=list)

    def judge(
        self, offset: int, key: str | None, head: Head, body: LogRecordBody, landed_ms: int | None = None
    ) -> None:
        """Take the next record."""
        if landed_ms is not None:
            self.landed_ms[offset] = landed_ms
        if isinstance(body, PartitionClaimed):
            self.owners[offset] = body.owner
        cause = body.cause if isinstance(body, RunEvent | InputSettled) else None
        self.end = offset + 1
        if self.fence.admit(head, offset, key, cause) is not Judgement.VALID:
            return
        if isinstance(body, InputSettled):
            self.records.append((offset, body))
        elif isinstance(body, RunEvent) and key is not None:
            self.records.append((offset, body))
            try:
                self.states[key] = fold(self.states.get(key), body)
            except IllegalTransition as error:
                self.illegal.append(f"log[{self.partition}]@{offset}: {error}")


class History:
    """The whole log, read on whenever somebody asks: a valid record stays valid, so nothing is read twice."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._topic = broker.topics.log
        self._partitions = [PartitionHistory(number) for number in range(broker.partitions)]

    def partitions(self) -> list[PartitionHistory]:
        """Every partition, up to its present end."""
        return [self._read(history) for history in self._partitions]

    def of(self, run_id: str) -> PartitionHistory:
        """The partition of a run, up to its present end."""
        return self._read(self._partitions[partition_of(run_id, self._broker.partitions)])

    def state(self, run_id: str) -> State | None:
        """One run, folded from its valid events; None before its first."""
        return self.of(run_id).states.get(run_id)

    def log_end(self, run_id: str) -> int:
        """How many records the log of the run's partition has, valid or not."""
        return self._broker.bounds(self._topic, partition_of(run_id, self._broker.partitions))[1]

    def _read(self, history: PartitionHistory) -> PartitionHistory:
        _, end = self._broker.bounds(self._topic, history.partition)
        for stored in self._broker.slice(self._topic, history.partition, history.end, end):
            key = None if stored.key is None else stored.key.decode()
            head = Head.decode(dict(stored.headers)["rf"])
            history.judge(stored.offset, key, head, log_codec.decode(stored.value or b""), stored.timestamp_ms)
        return history


def events_of(history: PartitionHistory, run_id: str, kind: type[EventT], before: int) -> Iterator[EventT]:
    """The valid events of one type of one run at offsets below ``before``."""
    for offset, body in history.records:
        if offset >= before:
            return
        if isinstance(body, kind) and body.run_id == run_id:
            yield body
