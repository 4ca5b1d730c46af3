"""What the in-memory Kafka offers to simulations beyond the ports: killed members, expired sessions, lost records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from runfold.adapters.memory import LoopClock, MemoryBroker, MemoryInputs, MemoryLog, MemoryMembership
from runfold.ports.log import LogUnrecoverable


class Owner:
    """Knows what it owns, and wakes who waits for a change."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.lost_calls: list[tuple[int, ...]] = []
        self._changed = asyncio.Event()

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Own more."""
        self.owned |= set(partitions)
        self._changed.set()

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Own less."""
        self.owned -= set(partitions)
        self._changed.set()

    async def lost(self, partitions: Sequence[int]) -> None:
        """Own less, and note it."""
        self.lost_calls.append(tuple(partitions))
        self.owned -= set(partitions)
        self._changed.set()

    async def until(self, count: int, lost_calls: int = 0) -> None:
        """Wait until that many partitions are owned, after so many losses."""
        async with asyncio.timeout(5):
            while len(self.owned) != count or len(self.lost_calls) != lost_calls:
                self._changed.clear()
                await self._changed.wait()


async def test_a_killed_member_says_nothing_and_its_partitions_move_after_the_session() -> None:
    """As after SIGKILL: until then nobody has them."""
    broker = MemoryBroker(4)
    killed, survivor = (MemoryMembership(broker, "g", broker.topics.requests, session_s=0.05) for _ in range(2))
    one, two = Owner(), Owner()
    dead = asyncio.ensure_future(killed.run(one))
    alive = asyncio.ensure_future(survivor.run(two))
    await one.until(2)
    await two.until(2)
    killed.kill()
    await two.until(4)
    assert len(one.owned) == 2
    assert one.lost_calls == []
    await survivor.leave()
    await alive
    dead.cancel()
    await asyncio.wait([dead])


async def test_a_member_whose_session_expired_is_told_that_it_lost_everything_and_joins_again() -> None:
    """``lost``, not ``revoked``: others may own it already."""
    broker = MemoryBroker(4)
    member, owner = MemoryMembership(broker, "g", broker.topics.requests), Owner()
    running = asyncio.ensure_future(member.run(owner))
    await owner.until(4)
    member.expire()
    await owner.until(4, lost_calls=1)
    assert owner.lost_calls == [(0, 1, 2, 3)]
    await member.leave()
    await running


async def test_a_truncated_topic_stops_its_readers() -> None:
    """Records that were there are gone: nobody guesses."""
    broker = MemoryBroker(1, clock=LoopClock())
    for topic in (broker.topics.log, broker.topics.requests):
        for _ in range(3):
            broker.append(topic, 0, None, b"x")
    follower = await MemoryLog(broker).follow(0, 3)
    reader = await MemoryInputs(broker).open(0, {broker.topics.requests: 3})
    for topic in (broker.topics.log, broker.topics.requests):
        broker.truncate(topic, 0, 1)
    with pytest.raises(LogUnrecoverable):
        await follower.next(1, 5.0)
    with pytest.raises(LogUnrecoverable):
        await reader.next(1)


async def test_a_group_needs_an_existing_topic() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        MemoryMembership(MemoryBroker(1), "g", "nowhere")
