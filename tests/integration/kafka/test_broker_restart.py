"""What a SIGKILL of the broker, and its coming back, does to each adapter: nothing but a delay."""

from __future__ import annotations

import asyncio

import pytest

from devstack import Stack
from tests.contract.worlds import Acks, KafkaWorld

pytestmark = pytest.mark.integration


async def test_acknowledgements_stay_contiguous_and_readers_go_on_over_a_sigkill_of_the_broker(
    world: KafkaWorld, stack: Stack
) -> None:
    """Appends before, during and after: each offset once, in order; a follower and an input reader miss nothing."""
    if not stack.kafka.controllable:
        pytest.skip("this broker is somebody else's")
    log, publisher, inputs = await world.log(), await world.publisher(), await world.inputs()
    follower, reader = await log.follow(0, 0), await inputs.open(0, {})
    acks = Acks()
    count = 0

    def append(how_many: int) -> None:
        nonlocal count
        for _ in range(how_many):
            log.append(0, "run-1", b"", b"%d" % count, acks)
            count += 1

    assert (await log.bounds(0)).end == 0  # asked now, so that what it learnt of the leader is old afterwards
    append(2000)
    await acks.wait(1000)
    killing = asyncio.create_task(asyncio.to_thread(stack.kafka.kill))
    append(1000)
    await killing
    append(500)
    published = asyncio.create_task(publisher.publish(world.topics.requests, b"run-1", b"x", partition=0))
    await asyncio.to_thread(stack.kafka.start)
    append(500)
    assert await acks.wait(count) == list(range(4000))
    followed: list[bytes] = []
    while len(followed) < count:
        followed += [record.value for record in await follower.next(5000, 30.0)]
    assert followed == [b"%d" % number for number in range(count)]
    assert (await published).offset == 0
    async with asyncio.timeout(30):
        assert [record.value for record in await reader.next(10)] == [b"x"]
    assert (await log.bounds(0)).end == count
