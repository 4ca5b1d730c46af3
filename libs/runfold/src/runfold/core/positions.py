"""Which inputs of a partition are settled.

The position of an input topic is the lowest offset without a valid record in the log, together with the set of
settled ones above it: never the largest ``cause``, since an earlier input may still be loading its run.
"""

from __future__ import annotations

from collections.abc import Mapping


class Position:
    """One input topic of one partition.

    Attributes:
        next: The lowest offset that is not settled.
        above: The settled offsets above it.
    """

    __slots__ = ("above", "next")

    def __init__(self, next_offset: int = 0, above: set[int] | None = None) -> None:
        self.next = next_offset
        self.above = set() if above is None else above

    @property
    def end(self) -> int:
        """The first offset from which on none is settled."""
        return max(self.next, max(self.above, default=-1) + 1)

    def settle(self, offset: int) -> bool:
        """Take note of a settled input; False if it was settled before."""
        if self.is_settled(offset):
            return False
        self.above.add(offset)
        self._compact()
        return True

    def is_settled(self, offset: int) -> bool:
        """Whether an input has its record in the log."""
        return offset < self.next or offset in self.above

    def _compact(self) -> None:
        while self.next in self.above:
            self.above.remove(self.next)
            self.next += 1


class Positions:
    """All input topics of one partition, by topic name; an unknown topic is at 0."""

    __slots__ = ("_by_topic",)

    def __init__(self, by_topic: Mapping[str, Position] | None = None) -> None:
        self._by_topic = dict(by_topic or {})

    def of(self, topic: str) -> Position:
        """Give the position of one topic, made at 0 if it is new."""
        return self._by_topic.setdefault(topic, Position())

    def next_of(self, topic: str) -> int:
        """Give the lowest offset of a topic that is not settled; changes nothing."""
        position = self._by_topic.get(topic)
        return 0 if position is None else position.next

    def settle(self, topic: str, offset: int) -> bool:
        """Take note of a settled input; False if it was settled before."""
        return self.of(topic).settle(offset)

    def is_settled(self, topic: str, offset: int) -> bool:
        """Whether an input has its record in the log."""
        position = self._by_topic.get(topic)
        return position is not None and position.is_settled(offset)

    def to_json(self) -> dict[str, dict[str, object]]:
        """As stored in Postgres: {topic: {"next": n, "above": [offsets]}}."""
        return {
            topic: {"next": position.next, "above": sorted(position.above)}
            for topic, position in sorted(self._by_topic.items())
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, object]]) -> Positions:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: If it is malformed.
        """
        positions = {}
        for topic, entry in data.items():
            next_offset, above = entry.get("next"), entry.get("above")
            if not isinstance(next_offset, int) or not isinstance(above, list):
                message = f"input position of {topic!r} is malformed: {entry!r}"
                raise ValueError(message)  # noqa: TRY004 - the data is bad, not the caller
            positions[topic] = Position(next_offset, {int(offset) for offset in above})
        return cls(positions)
