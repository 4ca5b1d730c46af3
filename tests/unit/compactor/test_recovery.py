"""The compactor against crashes, zombies, stale twins and damaged logs."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runfold.adapters.memory.clock import LoopClock
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.adapters.memory.store import MemoryStore
from runfold.core.events import Cause, Settlement
from runfold.core.fence import Head, Kind
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.ports.publisher import Published
from runfold.ports.store import Commit, PartitionRow, StaleCompactor
from tests.unit.compactor.world import World, until, valid_offsets
from tests.unit.core.building import Run, started


def _corrupt(world: World, run_id: str) -> None:
    """Flip a bit of a run's newest snapshot."""
    snapshots = world.database.snapshots[run_id]
    newest = max(snapshots)
    state = snapshots[newest].state
    snapshots[newest] = replace(snapshots[newest], state=state[:-1] + bytes([state[-1] ^ 1]))


async def test_a_set_aside_snapshot_leaves_no_hole(world: World) -> None:
    """Interleaving 4: the one before it is used, and the replay starts at its own next event."""
    run = world.begin("run")
    async with world.compacting(snapshot_every=10) as status:
        for _ in range(5):
            world.steps(run, 1)
            await until(lambda: status.applied == world.end)
    _corrupt(world, "run")
    assert (await world.restored()).runs["run"].state == run.state
    world.steps(run, 1)
    status = await world.compact(snapshot_every=10)
    assert status.snapshots >= 1
    assert (await world.restored()).runs["run"].state == run.state
    assert (await world.stored("run")).snapshots[0].seq == run.state.seq


async def test_a_set_aside_snapshot_of_a_run_that_left_memory_is_healed(world: World) -> None:
    """Nothing but an event of it brings the run back; a good snapshot is due at once, long before K events."""
    run = world.gated("run")
    other = world.begin("other")
    async with world.compacting() as status:
        await until(lambda: status.applied == world.end)
        known = len(run.events)
        run.do(run.next.resume("run:2", "approved"))
        run.do(run.next.request("g"))
        run.do(run.next.result("g"))
        run.turn("g")
        run.do(run.next.gate("g"))
        world.write(run, known)
        await until(lambda: status.applied == world.end)
        world.steps(other, 1)
        _corrupt(world, "run")
        known = len(run.events)
        run.do(run.next.resume("run:5", "approved"))
        world.write(run, known)
        await until(lambda: status.applied == world.end)
    assert (await world.stored("run")).snapshots[0].seq == run.state.seq
    assert world.row.replay_from == 5  # the first event of the other run
    assert (await world.restored()).runs["run"].state == run.state


async def test_replay_from_is_the_first_event_that_no_snapshot_covers(world: World) -> None:
    """Many runs with K-snapshots, two epochs, batches of odd sizes: after every commit the row is right."""
    runs = [world.begin(f"run-{index}") for index in range(7)]
    seen = set()
    async with world.compacting(snapshot_every=9, batch_records=13) as status:
        for turn in range(40):
            if turn == 20:
                world.claim("other")
                for run in runs:
                    run.epoch = world.epoch
            world.steps(runs[turn * 3 % 7], 1)
            await until(lambda: status.applied == world.end)
            row, offsets = world.row, valid_offsets(world)
            first = []
            for run_id, mine in offsets.items():
                newest = max(world.database.snapshots.get(run_id, {}).values(), key=lambda row: row.seq, default=None)
                first += [offset for offset in mine if newest is None or offset > newest.offset][:1]
            assert row.replay_from == min(first, default=row.applied)
            assert row.replay_epoch == (world.epoch if row.replay_from > world.epoch else 0)
            seen.add(row.replay_from)
    assert len(seen) > 10
    replay = await world.restored()
    assert {run.state.run_id: run.state for run in runs} == {
        run_id: loaded.state for run_id, loaded in replay.runs.items()
    }


async def test_void_records_change_nothing_now_or_later(world: World) -> None:
    """Interleaving 11: what a zombie wrote, and what was pipelined behind a lost append, stays void after a restart."""
    run = world.begin("run")
    zombie = Run(started(run_id="run"))
    zombie.turn("a")
    old = world.epoch
    world.claim("other")
    run.epoch = world.epoch
    for event in zombie.events[1:]:
        assert event.epoch == old
        world.append(event)
    lost = replace(run.next.ask(), seq=2)
    world.append(lost)  # its predecessor, seq 1, was lost
    known = len(run.events)
    run.turn("g")
    run.do(run.next.gate("g"))
    world.write(run, known)
    status = await world.compact()
    assert status.void == 3
    assert (await world.stored("run")).snapshots[0].offset == world.end - 1
    known = len(run.events)
    run.do(run.next.resume("run:2", "approved"))
    world.write(run, known)
    await world.compact()
    assert (await world.restored()).runs["run"].state == run.state


async def test_a_duplicated_settling_record_is_void(world: World) -> None:
    """Interleavings 5 and 9: an input has one effect; the dead copy follows the valid record only."""
    world.broker.append(world.topics.approvals, 0, b"run", b"{}", (("trace", b"1"), ("reason", b"theirs")))
    world.settle(0, Settlement.DEAD, "not_open")
    world.settle(0, Settlement.DEAD, "not_open")
    run = world.begin("run", Cause(world.topics.requests, 0, 0))
    world.append(replace(run.next.interrupt(), cause=Cause(world.topics.requests, 0, 0)))
    status = await world.compact()
    assert (status.void, status.dead) == (2, 1)
    [dead] = world.published(world.topics.dead)
    assert (dead.key, dead.value) == (b"run", b"{}")
    assert dict(dead.headers) == {
        "trace": b"1",
        "reason": b"not_open",
        "topic": world.topics.approvals.encode(),
        "partition": b"0",
        "offset": b"0",
        "detail": b"look again",
    }


async def test_positions_are_the_lowest_unsettled_with_the_set_above(world: World) -> None:
    """Interleaving 10: an earlier input without a record keeps the position, whatever was settled after it."""
    world.settle(0, Settlement.DUPLICATE)
    world.settle(2, Settlement.DUPLICATE)
    await world.compact()
    assert world.row.positions.to_json() == {world.topics.approvals: {"next": 1, "above": [2]}}


async def test_a_parked_run_is_seen_pins_the_replay_and_holds_up_nobody(world: World) -> None:
    poison = world.begin("poison")
    offset = world.garble(poison)
    world.gated("neighbour")
    status = await world.compact(snapshot_every=1)
    assert (status.parked, status.stopped) == (1, False)
    parked = await world.store.run("poison")
    assert parked is not None
    assert parked.parked is not None
    assert (parked.status, parked.seq) == (Status.RUNNING, 0)
    neighbour = await world.store.run("neighbour")
    assert neighbour is not None
    assert neighbour.status is Status.WAITING
    assert world.row.applied == world.end
    assert world.row.replay_from <= offset
    status = await world.compact(snapshot_every=1)
    assert status.parked == 1
    assert world.row.replay_from <= offset


async def test_an_illegal_event_parks_its_run_alone(world: World) -> None:
    run = world.begin("run")
    world.append(run.next.resume("run:9", "approved"))
    world.append(replace(run.next.interrupt(), seq=2))
    world.gated("neighbour")
    status = await world.compact()
    assert status.parked == 1
    assert [note["run_id"] for note in world.notifications()] == ["neighbour"]


async def test_a_run_whose_start_cannot_be_read_is_parked_too(world: World) -> None:
    world.append_raw(Head(Kind.EVENT, world.epoch, 0).encode(), "run", b"?")
    await world.compact()
    row = await world.store.run("run")
    assert row is not None
    assert row.parked is not None
    assert world.row.replay_from == 1


async def test_a_record_without_a_header_stops_the_partition(world: World) -> None:
    world.append_raw(None, "run", b"hello")
    status = await world.compact()
    assert status.stopped
    assert "offset 1" in (status.problem or "")
    assert 0 not in world.database.partitions


async def test_a_settling_record_that_cannot_be_read_stops_the_partition(world: World) -> None:
    world.append_raw(Head(Kind.SETTLED, world.epoch).encode(), None, b"?")
    status = await world.compact()
    assert status.stopped
    assert "upgrade this service" in (status.problem or "")


async def test_another_log_a_truncated_and_a_trimmed_one_stop_the_partition(world: World) -> None:
    world.steps(world.begin("run"), 2)
    await world.compact()
    begin = world.row
    world.broker.cluster_id = "other"
    status = await world.compact()
    assert "another log" in (status.problem or "")
    world.broker.cluster_id = begin.cluster_id
    world.broker.delete_before(world.topics.log, 0, begin.replay_from + 2)
    status = await world.compact()
    assert "2 of them were deleted" in (status.problem or "")
    world.database.partitions[0] = replace(begin, replay_from=begin.applied)
    world.broker.truncate(world.topics.log, 0, begin.applied - 3)
    status = await world.compact()
    assert "truncated by 3" in (status.problem or "")


async def test_of_two_compactors_one_is_stale_and_nothing_is_lost(world: World) -> None:
    """Interleaving 6, and the group's mistakes in general: both may run, one of them commits."""
    runs = [world.begin(f"run-{index}") for index in range(3)]
    async with world.compacting(batch_records=3) as one, world.compacting(batch_records=5) as two:
        for turn in range(30):
            world.steps(runs[turn % 3], 1)
            await until(lambda: world.database.partitions.get(0) is not None and world.row.applied == world.end)
    assert one.commits + two.commits == world.row.version
    assert one.commits > 0 or two.commits > 0
    replay = await world.restored()
    assert {run.state.run_id: run.state for run in runs} == {key: found.state for key, found in replay.runs.items()}


async def test_a_stale_compactor_writes_nothing(world: World) -> None:
    world.steps(world.begin("run"), 1)
    await world.compact()
    before = world.row
    await world.store.commit(Commit(before))
    try:
        await world.store.commit(Commit(replace(before, positions=Positions())))
    except StaleCompactor:
        pass
    else:
        raise AssertionError
    assert world.row.version == before.version + 1


async def test_a_store_that_is_away_delays_and_loses_nothing(world: World) -> None:
    run = world.begin("run")
    world.database.available = False
    async with world.compacting() as status:
        await until(lambda: status.failures > 0)
        assert "StoreUnavailable" in (status.problem or "")
        world.steps(run, 1)
        world.database.available = True
        await until(lambda: status.applied == world.end)
        assert status.problem is None
    row = await world.store.run("run")
    assert row is not None
    assert row.seq == run.state.seq


async def test_a_stop_finishes_the_batch_in_hand(world: World) -> None:
    held = asyncio.Event()
    release = asyncio.Event()

    class Slow(MemoryPublisher):
        async def publish(
            self,
            topic: str,
            key: bytes | None,
            value: bytes | None,
            *,
            headers: tuple[tuple[str, bytes], ...] = (),
            partition: int | None = None,
        ) -> Published:
            held.set()
            await release.wait()
            return await super().publish(topic, key, value, headers=headers, partition=partition)

    world.gated("run")
    compactor = world.compactor(Slow(world.broker))
    await compactor.assigned([0])
    await held.wait()
    closing = asyncio.ensure_future(compactor.close())
    await asyncio.sleep(0)
    release.set()
    await closing
    assert world.row.applied == world.end
    assert compactor.status() == []


async def test_a_lost_partition_is_dropped_at_once(world: World) -> None:
    compactor = world.compactor()
    await compactor.assigned([0])
    await compactor.assigned([])
    await compactor.lost([0])
    await compactor.lost([0])
    assert compactor.status() == []


async def test_a_busy_partition_is_committed_seldom_and_the_first_record_after_a_pause_at_once(world: World) -> None:
    """What changes again and again meanwhile is written once; nothing is late for it, and a stop waits no longer."""
    world.clock = LoopClock()  # type: ignore[assignment]
    clock = asyncio.get_running_loop().time
    run = world.begin("run")
    async with world.compacting(commit_every_s=0.3) as status:
        await until(lambda: status.applied == world.end)
        began, before = clock(), status.commits
        while clock() < began + 1.0:
            world.steps(run, 1)
            await asyncio.sleep(0.01)
        assert 1 <= status.commits - before <= 5
        await until(lambda: status.applied == world.end)
        await asyncio.sleep(0.35)
        began = clock()
        world.steps(run, 1)
        await until(lambda: status.applied == world.end)
        assert clock() < began + 0.2
    async with world.compacting(commit_every_s=60.0) as status:
        await until(lambda: status.applied == world.end)
        world.steps(run, 1)
        await asyncio.sleep(0.05)
        began = clock()
    assert clock() < began + 5.0
    assert status.applied == world.end


async def test_where_a_commit_takes_long_the_next_one_waits_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a database under load is asked for less, and what changes again and again meanwhile is written once."""
    world.clock = LoopClock()  # type: ignore[assignment]
    clock = asyncio.get_running_loop().time
    run = world.begin("run")
    stored = MemoryStore.commit

    async def slowly(store: MemoryStore, commit: Commit) -> PartitionRow:
        await asyncio.sleep(0.02)
        return await stored(store, commit)

    monkeypatch.setattr(MemoryStore, "commit", slowly)

    async def commits_in_a_second(**settings: Any) -> int:
        async with world.compacting(**settings) as status:
            await until(lambda: status.applied == world.end)
            began, before = clock(), status.commits
            while clock() < began + 1.0:
                world.steps(run, 1)
                await asyncio.sleep(0.01)
            return status.commits - before

    # A machine under load only ever makes commits rarer.
    often, seldom = await commits_in_a_second(commit_share=0.5), await commits_in_a_second(commit_share=0.1)
    assert seldom <= 6
    assert often > seldom
    assert seldom <= await commits_in_a_second(commit_share=0.01, commit_interval_max_s=0.1) <= 11
