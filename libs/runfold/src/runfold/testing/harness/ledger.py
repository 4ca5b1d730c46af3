"""What the log says, folded as it grows."""

from __future__ import annotations

from runfold.adapters.memory.broker import MemoryBroker
from runfold.codec import log as log_codec
from runfold.core.decisions import status
from runfold.core.events import Event, InputSettled, PartitionClaimed
from runfold.core.fence import HEADER, Fence, Head, Judgement
from runfold.core.state import State, Status
from runfold.core.transitions import fold


class Ledger:
    """Every valid event of every run so far.

    Attributes:
        events: In the order of the log.
        runs: Folded, by id, in the order of their start.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.events: list[Event] = []
        self.runs: dict[str, State] = {}
        self._broker = broker
        self._next = [0] * broker.partitions
        self._fences = [Fence() for _ in self._next]

    def refresh(self) -> Ledger:
        """Read what has come."""
        for partition, start in enumerate(self._next):
            _, end = self._broker.bounds(self._broker.topics.log, partition)
            if end > start:
                self._read(partition, start, end)
        return self

    def _read(self, partition: int, start: int, end: int) -> None:
        for stored in self._broker.slice(self._broker.topics.log, partition, start, end):
            head = Head.decode(dict(stored.headers)[HEADER])
            body = log_codec.decode(stored.value or b"")
            key = None if stored.key is None else stored.key.decode()
            cause = None if isinstance(body, PartitionClaimed) else body.cause
            judgement = self._fences[partition].admit(head, stored.offset, key, cause)
            if judgement is Judgement.VALID and not isinstance(body, PartitionClaimed | InputSettled):
                self.events.append(body)
                self.runs[body.run_id] = fold(self.runs.get(body.run_id), body)
        self._next[partition] = end

    @property
    def is_at_rest(self) -> bool:
        """Whether every run waits for somebody, or has ended."""
        return all(status(state) is not Status.RUNNING for state in self.runs.values())
