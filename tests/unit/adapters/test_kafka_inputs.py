"""What the reader of inputs says of offsets that retention deleted before it came to them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

from runfold.adapters.kafka.inputs import KafkaInputReader
from runfold.adapters.kafka.streams import OffsetGone
from runfold.ports.inputs import InputRecord
from runfold.ports.log import LogBounds

TOPIC = "requests"


@dataclass
class _Stream:
    position: int
    answers: deque[int | None]

    def take(self, _: int) -> list[InputRecord]:
        """Give the record of the next answer; None: its offset is gone."""
        answer = self.answers.popleft()
        if answer is None:
            raise OffsetGone
        return [InputRecord(TOPIC, 0, answer, b"r1", b"{}", (), 0)]


@dataclass
class _Kafka:
    """Offsets and streams of one topic: where it begins at each look, and what each read meets."""

    begins: deque[int]
    answers: deque[int | None] = field(default_factory=deque)

    async def bounds(self, *_: object) -> LogBounds:
        """Say where it begins."""
        return LogBounds(self.begins.popleft(), 100)

    def open(self, _topic: str, _partition: int, offset: int, wake: asyncio.Event) -> _Stream:
        """Read from there on."""
        wake.set()
        return _Stream(offset, self.answers)


async def test_what_two_strides_of_retention_deleted_is_one_range_until_a_record_is_given() -> None:
    """The second one must not hide the first, which nobody has been told of; what was given is never in it."""
    kafka = _Kafka(deque([0, 2, 5, 9]), deque([None, None, 6, None, 9]))
    reader = KafkaInputReader(cast("Any", kafka), cast("Any", kafka), 0)
    await reader.add(TOPIC, 0)
    assert [record.offset for record in await reader.next(10)] == [6]
    assert reader.skipped == {TOPIC: (0, 5)}
    reader._open[TOPIC].position = 7  # behind what was given
    assert [record.offset for record in await reader.next(10)] == [9]
    assert reader.skipped == {TOPIC: (7, 9)}
