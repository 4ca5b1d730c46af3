"""The contract of ``ports.inputs``, in memory and on Kafka."""

from __future__ import annotations

import asyncio

import pytest

from runfold.ports.inputs import InputReader, InputRecord
from runfold.ports.log import LogUnrecoverable
from tests.contract.worlds import World


async def collect(reader: InputReader, count: int) -> list[InputRecord]:
    """Read until that many have come."""
    records: list[InputRecord] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await reader.next(100)
    return records


async def test_inputs_of_all_three_topics_arrive_in_the_order_of_each(world: World) -> None:
    """Whatever the order between topics; a record stands as it was written."""
    publisher, inputs = await world.publisher(), await world.inputs()
    for number in range(10):
        for topic in world.topics.inputs:
            await publisher.publish(topic, b"run-1", b"%d" % number, partition=1, headers=(("h", b"v"), ("h", b"w")))
    reader = await inputs.open(1, {})
    records = await collect(reader, 30)
    for topic in world.topics.inputs:
        mine = [record for record in records if record.topic == topic]
        assert [record.offset for record in mine] == list(range(10))
        assert [record.value for record in mine] == [b"%d" % number for number in range(10)]
        assert {(record.partition, record.key, record.headers) for record in mine} == {
            (1, b"run-1", (("h", b"v"), ("h", b"w")))
        }
        assert all(record.timestamp_ms > 1_600_000_000_000 for record in mine)
    assert dict(reader.skipped) == {}
    await reader.close()


async def test_reading_starts_at_the_next_offset_of_each_topic(world: World) -> None:
    """A topic that is not named starts at 0; one may start at its end."""
    publisher, inputs = await world.publisher(), await world.inputs()
    requests, approvals, control = world.topics.inputs
    for topic in (requests, approvals, control):
        for _ in range(3):
            await publisher.publish(topic, None, b"x", partition=0)
    reader = await inputs.open(0, {requests: 2, approvals: 3})
    records = await collect(reader, 4)
    assert sorted((record.topic, record.offset) for record in records) == sorted(
        [(requests, 2), (control, 0), (control, 1), (control, 2)]
    )
    await reader.close()


async def test_next_waits_for_the_first_record(world: World) -> None:
    """A reader at the end is woken by a new record of any topic."""
    publisher, inputs = await world.publisher(), await world.inputs()
    reader = await inputs.open(2, {})
    for topic in world.topics.inputs:
        waiting = asyncio.create_task(reader.next(10))
        await asyncio.sleep(0)
        assert not waiting.done()
        await publisher.publish(topic, None, b"x", partition=2)
        assert [record.topic for record in await asyncio.wait_for(waiting, 30)] == [topic]
    await reader.close()


async def test_a_cancelled_wait_loses_nothing(world: World) -> None:
    """What comes after a cancelled ``next`` is given by the following one."""
    publisher, inputs = await world.publisher(), await world.inputs()
    reader = await inputs.open(0, {})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.next(10), 0.05)
    await publisher.publish(world.topics.requests, None, b"x", partition=0)
    assert [record.value for record in await collect(reader, 1)] == [b"x"]
    await reader.close()


async def test_next_gives_no_more_than_asked_for(world: World) -> None:
    """And no topic starves the others."""
    publisher, inputs = await world.publisher(), await world.inputs()
    for topic in world.topics.inputs:
        for _ in range(5):
            await publisher.publish(topic, None, b"x", partition=0)
    reader = await inputs.open(0, {})
    count = 0
    async with asyncio.timeout(30):
        while count < 15:
            piece = await reader.next(2)
            assert 1 <= len(piece) <= 2
            count += len(piece)
    await reader.close()


async def test_partitions_are_read_apart(world: World) -> None:
    """A reader sees its own partition only; closing it does not disturb another."""
    publisher, inputs = await world.publisher(), await world.inputs()
    first, second = await inputs.open(0, {}), await inputs.open(1, {})
    await publisher.publish(world.topics.requests, None, b"for 0", partition=0)
    await publisher.publish(world.topics.requests, None, b"for 1", partition=1)
    assert [record.value for record in await collect(first, 1)] == [b"for 0"]
    assert [record.value for record in await collect(second, 1)] == [b"for 1"]
    await first.close()
    await publisher.publish(world.topics.requests, None, b"for 1 again", partition=1)
    assert [record.value for record in await collect(second, 1)] == [b"for 1 again"]
    # The partition may come back to this process.
    again = await inputs.open(0, {})
    assert [record.value for record in await collect(again, 1)] == [b"for 0"]
    await again.close()
    await second.close()


async def test_what_retention_has_deleted_is_skipped_and_said(world: World) -> None:
    """Reading starts at the first record that exists, and ``skipped`` names what is gone."""
    publisher, inputs = await world.publisher(), await world.inputs()
    topic = world.topics.approvals
    for number in range(6):
        await publisher.publish(topic, None, b"%d" % number, partition=0)
    await world.delete_before(topic, 0, 4)
    reader = await inputs.open(0, {topic: 1})
    assert dict(reader.skipped) == {topic: (1, 4)}
    assert [record.offset for record in await collect(reader, 2)] == [4, 5]
    await reader.close()


async def test_a_position_beyond_the_end_is_an_error(world: World) -> None:
    """Inputs were lost, or the topic is another one."""
    publisher, inputs = await world.publisher(), await world.inputs()
    await publisher.publish(world.topics.requests, None, b"x", partition=0)
    with pytest.raises(LogUnrecoverable, match="offset 2 "):
        await inputs.open(0, {world.topics.requests: 2})


async def test_fetch_reads_one_record(world: World) -> None:
    """As it stands there; None if retention has deleted it; an error if it never existed."""
    publisher, inputs = await world.publisher(), await world.inputs()
    topic = world.topics.requests
    for number in range(4):
        await publisher.publish(topic, b"run-1", b"%d" % number, partition=3)
    await world.delete_before(topic, 3, 1)
    assert await inputs.fetch(topic, 3, 0) is None
    for offset in (2, 1):
        record = await inputs.fetch(topic, 3, offset)
        assert record is not None
        assert (record.topic, record.partition, record.offset) == (topic, 3, offset)
        assert (record.key, record.value) == (b"run-1", b"%d" % offset)
    with pytest.raises(LogUnrecoverable, match="offset 4 "):
        await inputs.fetch(topic, 3, 4)


async def test_a_record_may_lack_key_and_value(world: World) -> None:
    """Anybody may write anything: it is the runtime that judges it."""
    publisher, inputs = await world.publisher(), await world.inputs()
    await publisher.publish(world.topics.requests, None, None, partition=0)
    reader = await inputs.open(0, {})
    (record,) = await collect(reader, 1)
    assert (record.key, record.value, record.headers) == (None, None, ())
    await reader.close()
