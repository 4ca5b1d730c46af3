"""What the compactor writes of runs: rows, waits, calls, snapshots."""

from dataclasses import replace

from runfold.core.events import Recovery, Source, WaitReason, Why
from runfold.core.state import Status
from tests.unit.compactor.world import World, until


async def test_a_waiting_run_is_a_row_with_its_wait_and_a_snapshot_at_its_last_event(world: World) -> None:
    run = world.gated("run")
    await world.compact()
    row = await world.store.run("run")
    assert row is not None
    assert (row.status, row.seq, row.step, row.parked) == (Status.WAITING, 3, 2, None)
    assert (row.first_offset, row.last_offset) == (1, 4)
    assert row.usage == {"input_tokens": 10, "output_tokens": 2}
    [wait] = await world.store.waits("run")
    assert (wait.wait_id, wait.reason, wait.tool) == ("run:2", WaitReason.AWAITING_APPROVAL, "g")
    assert wait.opened_at == run.events[3].at
    assert await world.store.covered({"run": 3}) == {"run"}
    assert (world.row.applied, world.row.replay_from, world.row.epoch) == (5, 5, 0)


async def test_an_event_of_a_run_that_left_memory_goes_on_from_its_snapshot(world: World) -> None:
    run = world.gated("run")
    async with world.compacting() as status:
        await until(lambda: status.applied == world.end)
        known = len(run.events)
        run.do(run.next.resume("run:2", "approved"))
        run.do(run.next.request("g"))
        world.write(run, known)
        await until(lambda: status.applied == world.end)
    assert await world.store.waits() == []
    assert [due.call.step for due in await world.store.lease_due("me", 9, -1000, 1)] == []  # KEYED: the owner's own
    assert set(world.database.open_calls) == {("run", 3)}
    replay = await world.restored()
    assert replay.runs["run"].state == run.state


async def test_open_calls_are_those_requested_and_not_returned(world: World) -> None:
    run = world.begin("run")
    run.turn("a", "b")
    run.do(run.next.request("a", recovery=Recovery.LOOKUP))
    run.do(run.next.request("b", recovery=Recovery.LOOKUP))
    run.do(run.next.result("a"))
    world.write(run, 1)
    await world.compact()
    [opened] = world.database.open_calls.values()
    assert (opened.row.step, opened.row.tool, opened.row.attempt, opened.row.epoch) == (3, "b", 1, 0)


async def test_a_new_attempt_is_inserted_anew_and_the_same_one_is_not(world: World) -> None:
    run = world.begin("run")
    run.turn("a")
    run.do(run.next.request("a"))
    world.write(run, 1)
    await world.compact()
    first = world.database.open_calls["run", 2].inserted_at
    world.clock.seconds += 7
    await world.compact()  # a fresh read writes the rows of every run again
    assert world.database.open_calls["run", 2].inserted_at == first
    known = len(run.events)
    run.do(run.next.request("a", Why.STALE))
    world.write(run, known)
    await world.compact()
    assert world.database.open_calls["run", 2].inserted_at == first + 7


async def test_a_call_in_doubt_is_a_wait_and_no_open_call(world: World) -> None:
    run = world.begin("run")
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(run.next.doubt("a"))
    world.write(run, 1)
    await world.compact()
    assert world.database.open_calls == {}
    assert [wait.reason for wait in await world.store.waits()] == [WaitReason.INDETERMINATE]


async def test_an_ended_run_is_covered_and_leaves_the_take_over(world: World) -> None:
    run = world.begin("run")
    run.turn()
    run.do(run.next.complete())
    world.write(run, 1)
    await world.compact()
    row = await world.store.run("run")
    assert row is not None
    assert (row.status, row.output) == (Status.COMPLETED, run.state.output)
    assert await world.store.load_partition(0) == (world.row, []) or (await world.store.load_partition(0))[1] == []
    assert (await world.restored()).runs == {}


async def test_a_run_is_snapshotted_every_k_events(world: World) -> None:
    run = world.begin("run")
    async with world.compacting(snapshot_every=10) as status:
        for _ in range(6):
            world.steps(run, 1)
            await until(lambda: status.applied == world.end)
    stored = await world.stored("run")
    assert [snapshot.seq for snapshot in stored.snapshots] == [24, 12]
    assert [(chunk.first_index, chunk.count) for chunk in stored.chunks] == [(0, 7), (7, 6)]
    assert stored.snapshots[1].next_offset == stored.snapshots[1].offset + 1
    assert world.row.replay_from == world.end


async def test_events_without_a_snapshot_get_one_after_t_seconds(world: World) -> None:
    world.steps(world.begin("run"), 1)
    async with world.compacting() as status:
        await until(lambda: status.applied == world.end)
        assert (status.snapshots, world.row.replay_from) == (0, 1)
        world.clock.seconds += 31
        await until(lambda: status.snapshots == 1)
    assert world.row.replay_from == world.end


async def test_storage_of_a_long_run_is_linear() -> None:
    """Case: a run of 10,000 steps; and a snapshot's bytes do not grow."""

    async def stored_bytes(rounds: int) -> tuple[int, int]:
        world = World()
        world.claim()
        run = world.begin("run")
        async with world.compacting() as status:
            for _ in range(rounds // 25):
                world.steps(run, 25)
                await until(lambda: status.applied == world.end)
        stored = await world.stored("run")
        chunks = sum(len(chunk.data) for chunk in stored.chunks)
        return chunks, max(len(snapshot.state) for snapshot in stored.snapshots)

    short, long = await stored_bytes(500), await stored_bytes(5000)
    assert long[0] <= short[0] * 10.5
    assert long[1] <= short[1] + 32
    assert len({short[1], long[1]}) <= 2


async def test_what_a_reconciler_found_closes_the_call(world: World) -> None:
    run = world.begin("run")
    run.turn("a")
    run.do(run.next.request("a", recovery=Recovery.LOOKUP))
    world.write(run, 1)
    await world.compact()
    world.claim("other")
    run.epoch = world.epoch
    known = len(run.events)
    run.do(replace(run.next.result("a", Source.RECONCILED), epoch=world.epoch))
    world.write(run, known)
    await world.compact()
    assert world.database.open_calls == {}
