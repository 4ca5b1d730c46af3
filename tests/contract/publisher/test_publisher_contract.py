"""The contract of ``ports.publisher``, in memory and on Kafka."""

from __future__ import annotations

import asyncio

import pytest

from runfold.core.partitioning import partition_of
from runfold.ports.log import RecordTooLarge
from runfold.ports.publisher import PublishFailed
from tests.contract.worlds import PARTITIONS, World


async def test_a_published_record_stands_where_it_is_said_to(world: World) -> None:
    """Topic, partition and offset name the record that was written."""
    publisher, inputs = await world.publisher(), await world.inputs()
    for number in range(3):
        published = await publisher.publish(world.topics.control, b"run-1", b"%d" % number, partition=2)
        assert (published.topic, published.partition, published.offset) == (world.topics.control, 2, number)
        record = await inputs.fetch(world.topics.control, 2, number)
        assert record is not None
        assert record.value == b"%d" % number


async def test_a_key_chooses_the_partition_as_javas_client_does(world: World) -> None:
    """So that any producer's records of a run meet ours."""
    publisher = await world.publisher()
    for number in range(20):
        run_id = f"run-{number}"
        published = await publisher.publish(world.topics.requests, run_id.encode(), b"x")
        assert published.partition == partition_of(run_id, PARTITIONS)


async def test_many_may_publish_at_once(world: World) -> None:
    """Each hears of its own record."""
    publisher = await world.publisher()
    published = await asyncio.gather(
        *(publisher.publish(world.topics.notifications, None, b"x", partition=0) for _ in range(100))
    )
    assert sorted(record.offset for record in published) == list(range(100))


async def test_a_topic_or_partition_that_does_not_exist_is_named(world: World) -> None:
    """The caller hears of it, and goes on publishing elsewhere."""
    publisher = await world.publisher()
    with pytest.raises(PublishFailed, match=r"nowhere"):
        await publisher.publish("nowhere", b"k", b"x")
    with pytest.raises(PublishFailed, match=r"requests"):
        await publisher.publish(world.topics.requests, b"k", b"x", partition=99)
    await publisher.publish(world.topics.requests, b"k", b"x")


async def test_a_copy_of_the_largest_input_fits_and_more_is_refused(world: World) -> None:
    """A dead input is the original bytes plus headers of ours; trying again would not make a larger one fit."""
    publisher = await world.publisher()
    headers = (("reason", b"r" * 1000),)
    for topic in (world.topics.dead, world.topics.control):
        await publisher.publish(topic, b"k", b"x" * 1_048_588, headers=headers)
    with pytest.raises(RecordTooLarge):
        await publisher.publish(world.topics.dead, b"k", b"x" * 1_300_000)
    await publisher.publish(world.topics.dead, b"k", b"x")
