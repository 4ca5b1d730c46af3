"""The contract of ``ports.dead``, in memory and on Kafka."""

from __future__ import annotations

from tests.contract.worlds import World


async def test_an_empty_topic_is_read_to_its_end(world: World) -> None:
    """Nothing is waited for."""
    assert await world.dead().read() == []


async def test_every_record_of_every_partition_is_given_as_it_stands(world: World) -> None:
    """Bytes, key, headers and place; what is not there is None."""
    publisher, topic = await world.publisher(), world.topics.dead
    headers = (("reason", b"not_open"), ("x", b"theirs"))
    await publisher.publish(topic, b"run-1", b"\xffnot JSON", headers=headers, partition=1)
    await publisher.publish(topic, None, None, partition=3)
    found = {record.partition: record for record in await world.dead().read()}
    assert set(found) == {1, 3}
    first, second = found[1], found[3]
    assert (first.topic, first.offset, first.key, first.value) == (topic, 0, b"run-1", b"\xffnot JSON")
    assert first.headers == headers
    assert (second.key, second.value, second.headers) == (None, None, ())


async def test_they_are_given_oldest_first_and_those_that_retention_deleted_are_not(world: World) -> None:
    """Over all partitions, by Kafka's own time."""
    publisher, topic = await world.publisher(), world.topics.dead
    for number in range(6):
        await publisher.publish(topic, None, b"%d" % number, partition=number % 2)
    await world.delete_before(topic, 0, 1)
    found = await world.dead().read()
    assert [record.timestamp_ms for record in found] == sorted(record.timestamp_ms for record in found)
    assert sorted(record.value or b"" for record in found) == [b"1", b"2", b"3", b"4", b"5"]
