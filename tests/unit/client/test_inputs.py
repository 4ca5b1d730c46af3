"""Inputs are durable when the client returns, and what becomes of them can be asked."""

import asyncio

import pytest

from runfold.client import RunCancelledError, RunFailedError, Settled
from runfold.codec.input_types import BadInput
from runfold.codec.inputs import parse_input
from runfold.core.events import Cause, RunCancelled, RunFailed, Settlement
from runfold.core.state import Status
from tests.unit.client.world import RUN, World, asked, completed, settled, started


async def test_an_input_stands_in_its_run_s_partition_and_parses(world: World) -> None:
    sent = await world.client.start("research", {"q": 1}, run_id=RUN)
    assert (sent.published.topic, sent.published.partition) == ("runfold.requests", world.partition)
    (record,) = world.broker.slice("runfold.requests", world.partition, 0, 1)
    assert parse_input("requests", record.key, record.value).run_id == RUN
    sent = await world.client.reject(RUN, f"{RUN}:19", by="dana", comment="no")
    assert sent.published.topic == "runfold.approvals"


async def test_bad_input_is_refused_before_anything_is_written(world: World) -> None:
    with pytest.raises(BadInput, match="run_id"):
        await world.client.start("research", {}, run_id="no spaces")
    assert world.broker.bounds("runfold.requests", world.partition) == (0, 0)


async def test_an_accepted_input_names_its_event(world: World) -> None:
    sent = await world.client.start("research", {}, run_id=RUN)
    epoch = world.claim()
    where = sent.published
    world.write(started(epoch, cause=Cause(where.topic, where.partition, where.offset)))
    found = await world.client.settled(sent)
    assert found == Settled("accepted", event="run_started", seq=0)


async def test_a_dead_input_that_was_copied_again_is_listed_once(world: World) -> None:
    """Whoever folds the log again copies it again, perhaps without its bytes: the first copy counts."""
    headers = tuple((name, value.encode()) for name, value in (("topic", "t"), ("partition", "0"), ("offset", "4")))
    for value in (b'{"a":1}', None):
        world.broker.append(world.topics.dead, 0, b"r", value, headers)
    assert [row["value"] for row in await world.client.dead()] == [{"a": 1}]


async def test_a_dead_input_says_why(world: World) -> None:
    epoch = world.claim()
    sent = await world.client.cancel(RUN, reason="x", by="ops")
    world.write(settled(epoch, sent.published, Settlement.DEAD, "unknown_run"))
    found = await world.client.settled(sent)
    assert found is not None
    assert found.is_dead
    assert found.reason == "unknown_run"


async def test_a_void_settlement_is_not_believed(world: World) -> None:
    old = world.claim()
    sent = await world.client.cancel(RUN, reason="x", by="ops")
    new = world.claim()
    world.write(settled(old, sent.published, Settlement.DEAD, "unknown_run"))
    world.write(settled(new, sent.published, Settlement.DUPLICATE))
    assert await world.client.settled(sent) == Settled("duplicate")


async def test_nothing_in_time_is_none_and_the_input_stays(world: World) -> None:
    sent = await world.client.cancel(RUN, reason="x")
    assert await world.client.settled(sent, timeout_s=0.01) is None


async def test_inputs_are_sent_while_postgres_is_away(world: World) -> None:
    world.database.available = False
    sent = await world.client.cancel(RUN, reason="x")
    assert sent.place is None
    assert await world.client.settled(sent) is None


async def test_result_waits_for_the_output_even_of_a_run_to_come(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        result = group.create_task(world.client.result(RUN))
        await asyncio.sleep(0)
        epoch = world.claim()
        world.write(started(epoch))
        world.write(asked(epoch))
        world.write(completed(epoch, 2))
    assert result.result() == "done"


async def test_result_of_a_run_that_ended_long_ago(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    last = world.write(completed(epoch, 1))
    await world.compacted(first_epoch=epoch, seq=1, last=last, epoch=epoch, status=Status.COMPLETED)
    assert await world.client.result(RUN) == "done"


async def test_result_raises_for_a_run_without_an_output(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    world.write(RunFailed(run_id=RUN, seq=1, epoch=epoch, at=1, error="broken"))
    with pytest.raises(RunFailedError, match="broken"):
        await world.client.result(RUN)


async def test_result_raises_for_a_cancelled_run(world: World) -> None:
    epoch = world.claim()
    world.write(started(epoch))
    world.write(RunCancelled(run_id=RUN, seq=1, epoch=epoch, at=1, reason="x", open_keys=("run-8c1:3",)))
    with pytest.raises(RunCancelledError) as caught:
        await world.client.result(RUN)
    assert caught.value.open_keys == ("run-8c1:3",)
