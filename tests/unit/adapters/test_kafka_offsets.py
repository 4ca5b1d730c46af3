"""Answers of an admin client about offsets that are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable
from runfold.adapters.kafka.offsets import Offsets
from runfold.ports.log import LogBounds

INVALID = -1001


class Answers:
    """An admin client that answers with these offsets, one question after the other, and the last one for ever."""

    def __init__(self, *offsets: int, leaders: Sequence[int] = (1,)) -> None:
        self._offsets = list(offsets)
        self._leaders = list(leaders)
        self.asked: list[str] = []

    def list_topics(self, topic: str, **_: float) -> Any:
        """See ``AdminClient``; each question finds the next leader, and the last one for ever."""
        leader = self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]
        self.asked.append(f"leader {leader}")
        found = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=leader)})
        return SimpleNamespace(topics={topic: found})

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: float) -> dict[TopicPartition, Any]:
        """See ``AdminClient``."""
        self.asked.append("offset")
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]))
        return dict.fromkeys(asked, answer)


def _asking(monkeypatch: pytest.MonkeyPatch, client: Answers, timeout: float) -> Offsets:
    offsets = Offsets(KafkaConfig("127.0.0.1:1"), timeout=timeout)
    monkeypatch.setattr(offsets, "_client", lambda: client)
    return offsets


async def test_an_offset_that_is_none_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the broker dies during the question the client says -1001, without an error: that is no truncated log."""
    offsets = _asking(monkeypatch, Answers(INVALID, INVALID, 3, INVALID, 3, 9), timeout=10.0)
    assert await offsets.bounds("log", 0) == LogBounds(3, 9)


async def test_no_offset_in_time_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said so, as of any other answer that does not come."""
    with pytest.raises(KafkaUnavailable, match="no offset in the answer: -1001, -1001"):
        await _asking(monkeypatch, Answers(INVALID), timeout=0.0).bounds("log", 0)


async def test_offsets_are_asked_for_only_where_the_leader_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has to look for it first may take the whole process down."""
    client = Answers(3, 9, leaders=[-1, 1])
    assert await _asking(monkeypatch, client, timeout=10.0).bounds("log", 0) == LogBounds(3, 9)
    assert client.asked == ["leader -1", "leader 1", "offset", "offset"]


async def test_a_partition_that_does_not_exist_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no question about it is put to a client that knows no leader of it."""
    client = Answers(3)
    with pytest.raises(KafkaUnavailable, match="Unknown topic or partition"):
        await _asking(monkeypatch, client, timeout=0.0).bounds("log", 7)
    assert "offset" not in client.asked
