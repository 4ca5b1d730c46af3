"""The contract of ``ports.log``, for the in-memory log and for Kafka."""

from __future__ import annotations

import asyncio

import pytest

from runfold.ports.log import Log, LogRecord, LogUnrecoverable, RecordTooLarge
from tests.contract.worlds import PARTITIONS, Acks, World, append


async def read_all(log: Log, partition: int, start: int, end: int, at_once: int = 1000) -> list[LogRecord]:
    """Read a range piece by piece."""
    records: list[LogRecord] = []
    while start < end:
        piece = await log.read(partition, start, end, at_once)
        assert 0 < len(piece) <= at_once
        records += piece
        start = piece[-1].offset + 1
    return records


async def test_an_appended_record_is_read_back_as_it_was(world: World) -> None:
    """Key, header and value survive; a claim has no key; an unusual value is not touched."""
    log = await world.log()
    await append(log, 1, b"claim", key=None, head=b"\x00" * 17)
    await append(log, 1, b"", key="run-ü", head=b"\xff\x00")
    assert await log.read(1, 0, 2, 10) == [
        LogRecord(0, None, b"\x00" * 17, b"claim"),
        LogRecord(1, "run-ü", b"\xff\x00", b""),
    ]


async def test_acknowledgements_come_in_order_and_contiguous(world: World) -> None:
    """Two hundred appends in flight at once, on two partitions: each partition's offsets count up by one."""
    log = await world.log()
    acks = [Acks(), Acks()]
    for number in range(200):
        log.append(number % 2, "run-1", b"", b"%d" % number, acks[number % 2])
    for partition in (0, 1):
        assert await acks[partition].wait(100) == list(range(100))
        values = [record.value for record in await read_all(log, partition, 0, 100)]
        assert values == [b"%d" % number for number in range(partition, 200, 2)]


async def test_an_acknowledgement_never_comes_before_append_has_returned(world: World) -> None:
    """The writer has noted what it waits for before it is told."""
    log = await world.log()
    acks = Acks()
    log.append(0, "run-1", b"", b"x", acks)
    assert acks.told == []
    await acks.wait(1)


async def test_a_second_writer_leaves_a_gap(world: World) -> None:
    """The gap is how an owner learns that somebody else has written, and reading it tells what."""
    owner, other = await world.log(), await world.log()
    assert await append(owner, 2, b"claim") == 0
    assert await append(other, 2, b"foreign claim") == 1
    assert await append(owner, 2, b"event") == 2
    assert [record.value for record in await owner.read(2, 1, 2, 10)] == [b"foreign claim"]


async def test_bounds_cover_everything_acknowledged(world: World) -> None:
    """Of an empty partition, after appends, and after retention."""
    log = await world.log()
    before = await log.bounds(3)
    assert (before.begin, before.end) == (0, 0)
    for number in range(5):
        await append(log, 3, b"x")
        assert (await log.bounds(3)).end == number + 1
    await world.delete_before(world.topics.log, 3, 2)
    after = await log.bounds(3)
    assert (after.begin, after.end) == (2, 5)


async def test_a_record_that_is_too_large_is_not_produced(world: World) -> None:
    """It raises, its callback is never called, and the log goes on contiguous; the largest one allowed fits."""
    log = await world.log()
    acks = Acks()
    with pytest.raises(RecordTooLarge, match="1000001"):
        log.append(0, "k", b"", b"x" * (1_000_000 - 2), acks)
    assert await append(log, 0, b"x" * (1_000_000 - 3), key="k", head=b"") == 0
    assert acks.told == []


async def test_reading_gives_at_most_what_was_asked_for(world: World) -> None:
    """Never more than ``max_records``, never past ``end``; an empty range is empty, wherever it is."""
    log = await world.log()
    acks = Acks()
    for number in range(50):
        log.append(0, None, b"", b"%d" % number, acks)
    await acks.wait(50)
    assert await log.read(0, 7, 7, 10) == []
    assert await log.read(0, 90, 80, 10) == []
    assert [record.offset for record in await read_all(log, 0, 10, 40, at_once=7)] == list(range(10, 40))
    # Once more from the middle: reading has no memory that a caller could notice.
    assert [record.offset for record in await read_all(log, 0, 20, 22)] == [20, 21]


async def test_reading_what_retention_has_deleted_is_an_error(world: World) -> None:
    """A start below what exists is never moved silently."""
    log = await world.log()
    for _ in range(4):
        await append(log, 0, b"x")
    await world.delete_before(world.topics.log, 0, 3)
    with pytest.raises(LogUnrecoverable, match="offset 1 "):
        await log.read(0, 1, 4, 10)
    assert [record.offset for record in await log.read(0, 3, 4, 10)] == [3]


async def test_a_log_that_ends_before_what_is_known_of_it_is_an_error(world: World) -> None:
    """A caller that knows of an end which does not exist has another log, or a truncated one."""
    log = await world.log()
    await append(log, 0, b"x")
    with pytest.raises(LogUnrecoverable, match="offset 5 "):
        await log.read(0, 5, 9, 10)
    with pytest.raises(LogUnrecoverable):
        await read_all(log, 0, 0, 3)


async def test_a_follower_waits_at_the_end(world: World) -> None:
    """Nothing for the time-out, then each record soon after it was appended, in order."""
    log = await world.log()
    await append(log, 1, b"old")
    follower = await log.follow(1, 1)
    assert await follower.next(10, 0.2) == []
    waiting = asyncio.create_task(follower.next(10, 30.0))
    await append(log, 1, b"new")
    assert [record.value for record in await waiting] == [b"new"]
    await append(log, 1, b"newer")
    assert [record.offset for record in await follower.next(10, 30.0)] == [2]
    await follower.close()


async def test_a_follower_reads_from_where_it_was_told(world: World) -> None:
    """All of it, in pieces no larger than asked for; another follower of another partition is its own."""
    log = await world.log()
    acks = Acks()
    for number in range(30):
        log.append(number % 2, None, b"", b"%d" % number, acks)
    await acks.wait(30)
    for partition in (0, 1):
        follower = await log.follow(partition, 5)
        offsets: list[int] = []
        while len(offsets) < 10:
            piece = await follower.next(4, 30.0)
            assert 0 < len(piece) <= 4
            offsets += [record.offset for record in piece]
        assert offsets == list(range(5, 15))
        await follower.close()


@pytest.mark.parametrize("start", [0, 9])
async def test_a_follower_of_offsets_that_do_not_exist_fails(world: World, start: int) -> None:
    """Below what retention left, or beyond the end: an error, never a jump."""
    log = await world.log()
    for _ in range(4):
        await append(log, 0, b"x")
    await world.delete_before(world.topics.log, 0, 2)
    follower = await log.follow(0, start)
    with pytest.raises(LogUnrecoverable):
        await follower.next(10, 30.0)
    await follower.close()


async def test_identity_is_the_same_for_every_process(world: World) -> None:
    """It is what tells another log from this one."""
    first, second = await world.log(), await world.log()
    identity = await first.identity()
    assert identity == await second.identity()
    assert identity.cluster_id
    assert identity.topic_id


async def test_partitions_are_apart(world: World) -> None:
    """Each has its own offsets."""
    log = await world.log()
    assert [await append(log, partition, b"x") for partition in range(PARTITIONS)] == [0] * PARTITIONS
