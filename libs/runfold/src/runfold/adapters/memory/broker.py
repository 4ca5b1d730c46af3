"""An in-memory Kafka: topics as lists of records per partition, retention, and who waits for new records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runfold.adapters.memory.clock import LoopClock
from runfold.ports.clock import Clock
from runfold.ports.topics import Topics

if TYPE_CHECKING:
    from runfold.adapters.memory.membership import MemoryGroup

Place = tuple[str, int]
"""Topic (full name) and partition."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as the broker keeps it; ``timestamp_ms`` in milliseconds since 1970."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


@dataclass(slots=True)
class _Partition:
    begin: int = 0
    records: list[Stored] = field(default_factory=list)
    # In the order of their coming: a simulation has to repeat itself.
    waiters: dict[asyncio.Event, None] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.begin + len(self.records)


class MemoryBroker:
    """One Kafka for all "processes" of a test. Every method acts at once; delays and losses belong to the clients.

    Args:
        partitions: Of each topic.
        topic_prefix: Of each topic.
        clock: For the records' timestamps.

    Attributes:
        topics: The topics' names.
        cluster_id: Another broker may be given another one.
        groups: Consumer groups by name.
    """

    def __init__(self, partitions: int, topic_prefix: str = "runfold.", clock: Clock | None = None) -> None:
        self.partitions = partitions
        self.topics = Topics(topic_prefix)
        self.cluster_id = "memory"
        self.groups: dict[str, MemoryGroup] = {}
        self._made: dict[str, int] = {}
        self._clock = clock or LoopClock()
        self._places = {(topic, number): _Partition() for topic in self.topics.all for number in range(partitions)}

    def exists(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition."""
        return (topic, partition) in self._places

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> int:
        """Append a record and wake its readers; give its offset."""
        place = self._places[topic, partition]
        record = Stored(place.end, key, value, headers, self._clock.now_ms())
        place.records.append(record)
        self._wake(place)
        return record.offset

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Offset of the first record that exists, and of the next one to be appended."""
        place = self._places[topic, partition]
        return place.begin, place.end

    def slice(self, topic: str, partition: int, start: int, end: int) -> list[Stored]:
        """Give records [start, end); ``start`` must be within the bounds."""
        place = self._places[topic, partition]
        return place.records[start - place.begin : max(end - place.begin, 0)]

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention: delete the records below ``offset``."""
        place = self._places[topic, partition]
        gone = min(offset, place.end) - place.begin
        if gone > 0:
            del place.records[:gone]
            place.begin += gone
            self._wake(place)

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Disaster: forget the records from ``end`` on, acknowledged or not."""
        place = self._places[topic, partition]
        del place.records[max(end - place.begin, 0) :]
        self._wake(place)

    def recreate(self, topic: str) -> None:
        """Disaster: delete a topic with its records, and make it again: it has another id."""
        self._made[topic] = self._made.get(topic, 0) + 1
        for number in range(self.partitions):
            place = self._places[topic, number]
            place.records.clear()
            place.begin = 0
            self._wake(place)

    def topic_id(self, topic: str) -> str:
        """Give the id that tells a topic from another one of its name."""
        made = self._made.get(topic, 0)
        return f"{topic}#{made}" if made else topic

    @contextmanager
    def waiting(self, places: Iterable[Place]) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever one of the places changes; the caller clears it."""
        event = asyncio.Event()
        watched = [self._places[place] for place in places]
        for place in watched:
            place.waiters[event] = None
        try:
            yield event
        finally:
            for place in watched:
                place.waiters.pop(event, None)

    @staticmethod
    def _wake(place: _Partition) -> None:
        for event in place.waiters:
            event.set()
