"""The client reads a run's valid events, wherever Postgres stands, and only those."""

import asyncio
from typing import Any

import pytest

from runfold.client import NoSuchEventError, RunNotFoundError
from runfold.core.payload import BlobRef, canonical_json
from runfold.core.state import Status
from tests.unit.client.world import RUN, World, asked, completed, started


async def types(world: World, **options: bool) -> list[tuple[int, str]]:
    return [(event["seq"], event["type"]) async for event in world.client.events(RUN, **options)]


async def test_a_run_that_postgres_does_not_know_is_found_in_the_tail(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    world.write(asked(epoch))
    assert await types(world) == [(0, "run_started"), (1, "model_call_requested")]


async def test_void_records_are_not_shown(world: World) -> None:
    old = world.claim()
    world.write(started(old))
    world.write(asked(old, seq=2))  # behind a lost append: seq 1 is missing
    new = world.claim()
    world.write(asked(old))  # a zombie's
    valid = world.write(asked(new))
    world.write(asked(new))  # seq 1 again
    world.write(started(new, run_id="run-other"))
    events = [event async for event in world.client.events(RUN)]
    assert [(event["seq"], event["offset"]) for event in events] == [(0, old + 1), (1, valid)]


@pytest.mark.parametrize("compacted", [0, 1, 2])
async def test_history_and_tail_join_without_a_gap(world: World, compacted: int) -> None:
    epoch = world.claim()
    offsets = [world.write(started(epoch)), world.write(asked(epoch)), world.write(completed(epoch, 2))]
    status = Status.COMPLETED if compacted == 2 else Status.RUNNING
    await world.compacted(first_epoch=epoch, seq=compacted, last=offsets[compacted], epoch=epoch, status=status)
    assert [seq for seq, _ in await types(world)] == [0, 1, 2]
    assert [seq for seq, _ in await types(world, follow=True)] == [0, 1, 2]


async def test_a_stale_record_behind_what_is_compacted_stays_void(world: World) -> None:
    """What a snapshot covers is skipped by offset, never by seq, which would revive a void record."""
    old = world.claim()
    world.write(started(old))
    world.write(asked(old, seq=2))  # void: pipelined behind a lost append
    new = world.claim()
    last = world.write(asked(new))
    await world.compacted(first_epoch=old, seq=1, last=last, epoch=new, status=Status.RUNNING)
    world.write(completed(new, 2))
    assert await types(world) == [(0, "run_started"), (1, "model_call_requested"), (2, "run_completed")]


async def test_a_parked_run_s_events_are_all_shown(world: World) -> None:
    """Its rows stand still where the compactor gave up, while the partition goes on."""
    epoch = world.claim()
    first = world.write(started(epoch))
    last = world.write(asked(epoch))
    await world.compacted(first_epoch=epoch, seq=0, last=first, epoch=epoch, status=Status.RUNNING, parked_until=last)
    assert [seq for seq, _ in await types(world)] == [0, 1]
    assert (await world.client.show(RUN))["parked"] == "cannot be folded"


async def test_an_unknown_run_is_an_error_that_names_it(world: World) -> None:
    world.claim()
    for follow in (False, True):
        with pytest.raises(RunNotFoundError, match="run-8c1"):
            await types(world, follow=follow)
    with pytest.raises(RunNotFoundError):
        await world.client.show(RUN)


async def test_follow_goes_on_until_the_end(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    seen: list[int] = []
    first = asyncio.Event()

    async def follow() -> None:
        async for event in world.client.events(RUN, follow=True):
            seen.append(event["seq"])
            first.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await first.wait()
        world.write(asked(epoch))
        world.write(completed(epoch, 2))
    assert seen == [0, 1, 2]


async def test_payloads_in_the_object_store_are_read(world: World) -> None:
    epoch = world.claim()
    question: Any = {"question": "x" * 1000}
    world.write(started(epoch, question=await world.blobs.put(canonical_json(question))))
    (event,) = [event async for event in world.client.events(RUN)]
    assert event["input"] == question


async def test_a_lost_payload_hides_nothing_else(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch, question=BlobRef("ab" * 32, 10)))
    (event,) = [event async for event in world.client.events(RUN)]
    assert (event["agent"], event["input"]["$missing"]) == ("research", "ab" * 32)


async def test_show_is_not_behind_the_log(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    last = world.write(asked(epoch))
    await world.compacted(first_epoch=epoch, seq=1, last=last, epoch=epoch, status=Status.RUNNING)
    row = await world.client.show(RUN)
    assert (row["status"], row["seq"], row["waits"]) == ("running", 1, [])
    world.write(asked(epoch, seq=2, attempt=2))
    folded = await world.client.show(RUN)
    assert folded["seq"] == 2
    assert set(folded) == set(row)


async def test_state_at_an_event(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    world.write(asked(epoch))
    assert (await world.client.state(RUN, at=0))["step"] == 0
    assert (await world.client.state(RUN))["step"] == 1
    assert (await world.client.state(RUN))["transcript"] == [{"kind": "user", "seq": 0, "content": "What is new?"}]
    with pytest.raises(NoSuchEventError, match="no event 7: its last one is 1"):
        await world.client.state(RUN, at=7)
