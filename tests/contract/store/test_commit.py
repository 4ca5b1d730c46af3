"""What a commit writes, and when it writes nothing. The same for memory and Postgres."""

import asyncio

import pytest

from runfold.core.events import Version
from runfold.core.payload import BlobRef, Inline
from runfold.core.positions import Position, Positions
from runfold.core.state import Status
from runfold.ports.store import StaleCompactor
from tests.contract.store import rows
from tests.contract.store.conftest import AnyStore


async def test_first_commit_makes_the_row_and_raises_its_version(store: AnyStore) -> None:
    positions = Positions({"t": Position(4, {6, 9})})
    written = await store.commit(rows.commit(rows.partition(positions=positions)))
    assert written.version == 1
    read = await store.partition(3)
    assert read is not None
    assert (read.version, read.applied, read.epoch, read.replay_from, read.replay_epoch) == (1, 10, 4, 7, 2)
    assert (read.cluster_id, read.topic_id) == ("cluster", "topic")
    assert read.positions.to_json() == positions.to_json()


async def test_a_commit_that_leaves_applied_as_it_was_makes_the_others_stale(store: AnyStore) -> None:
    """Interleaving 6: the version, not ``applied``, is what a commit must match."""
    first = await store.commit(rows.commit())
    await store.commit(rows.commit(first))
    with pytest.raises(StaleCompactor):
        await store.commit(rows.commit(first, runs=[rows.run(seq=99)]))
    assert await store.run("run") is None


async def test_two_first_commits_at_once_leave_one(store: AnyStore) -> None:
    commits = [store.commit(rows.commit(runs=[rows.run(f"run-{index}")])) for index in range(2)]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["PartitionRow", "StaleCompactor"]
    assert len(await store.runs(status=None, agent=None, limit=10)) == 1


async def test_a_stale_commit_of_several_parts_writes_none_of_them(store: AnyStore) -> None:
    """Nor does it disturb the next one."""
    first = await store.commit(rows.commit())
    second = await store.commit(rows.commit(first))
    for _ in range(2):
        with pytest.raises(StaleCompactor):
            await store.commit(rows.commit(first, **rows.every_part()))
    assert (await store.run("run"), await store.waits("run"), await store.load_runs(["run"])) == (None, [], {})
    await store.commit(rows.commit(second, **rows.every_part()))
    assert [wait.wait_id for wait in await store.waits("run")] == [rows.wait().wait_id]
    assert len((await store.load_runs(["run"]))["run"].snapshots) == 1


async def test_a_commit_on_a_version_that_is_ahead_is_stale(store: AnyStore) -> None:
    with pytest.raises(StaleCompactor):
        await store.commit(rows.commit(rows.partition(version=1)))


async def test_a_stored_row_does_not_change_with_the_caller_s_positions(store: AnyStore) -> None:
    positions = Positions()
    await store.commit(rows.commit(rows.partition(positions=positions)))
    positions.settle("t", 0)
    read = await store.partition(3)
    assert read is not None
    assert not read.positions.is_settled("t", 0)


async def test_a_run_comes_back_as_it_was_written(store: AnyStore) -> None:
    ended = rows.run(status=Status.FAILED, error="no", output=Inline(b"\x00\xff"), parked="why")
    large = rows.run("large", output=BlobRef("ab" * 32, 70000), cost_nano_usd=None)
    await store.commit(rows.commit(runs=[ended, large]))
    assert await store.run("run") == ended
    assert await store.run("large") == large
    assert await store.run("nobody") is None


async def test_text_that_postgres_cannot_hold_does_not_stop_a_commit(store: AnyStore) -> None:
    """A NUL in what a tool or a model said must not make the partition's commits fail for ever."""
    nul = "a\0b"
    await store.commit(
        rows.commit(
            runs=[rows.run(error=nul, agent=nul, version=Version(nul, tools=((nul, nul),)), usage={nul: 1})],
            opened_waits=[rows.wait(tool=nul)],
            opened_calls=[rows.call(tool=nul)],
        )
    )
    assert await store.run("run") is not None


async def test_a_row_keeps_what_tells_its_log_and_its_inputs(store: AnyStore) -> None:
    """The last record's digest, and the topics that the positions are about."""
    await store.commit(rows.commit(rows.partition(tail=(9, "digest"), input_ids={"requests": "id"})))
    row = await store.partition(3)
    assert row is not None
    assert (row.tail, row.input_ids) == ((9, "digest"), {"requests": "id"})


async def test_the_same_version_at_another_place_is_stale(store: AnyStore) -> None:
    """A database restored from a backup comes by the same versions a second time, with other contents."""
    row = await store.commit(rows.commit())
    with pytest.raises(StaleCompactor):
        await store.commit(rows.commit(row, expected_applied=row.applied + 1))
    await store.commit(rows.commit(row, expected_applied=row.applied))


async def test_no_commit_lowers_the_seq_of_a_run(store: AnyStore) -> None:
    row = await store.commit(rows.commit(runs=[rows.run(seq=5)]))
    row = await store.commit(rows.commit(row, runs=[rows.run(seq=4, step=1)]))
    assert await store.run("run") == rows.run(seq=5)
    await store.commit(rows.commit(row, runs=[rows.run(seq=5, parked="poison")]))
    found = await store.run("run")
    assert found is not None
    assert found.parked == "poison"


async def test_the_newest_two_snapshots_are_kept(store: AnyStore) -> None:
    row = rows.partition()
    for seq in (1, 2, 3):
        snapshot = rows.snapshot(seq=seq, offset=seq * 10)
        row = await store.commit(rows.commit(row, runs=[rows.run(seq=seq)], snapshots=[snapshot]))
    stored = (await store.load_runs(["run"]))["run"]
    assert [snapshot.seq for snapshot in stored.snapshots] == [3, 2]


async def test_a_new_snapshot_takes_the_place_of_unreadable_ones(store: AnyStore) -> None:
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot(), rows.snapshot(seq=3)]))
    good = rows.snapshot(seq=8, offset=20)
    await store.commit(rows.commit(row, runs=[rows.run(seq=8)], snapshots=[good], unreadable=["run"]))
    assert (await store.load_runs(["run"]))["run"].snapshots == (good,)


async def test_a_snapshot_learns_where_its_run_goes_on(store: AnyStore) -> None:
    """Interleaving 4: the replay after falling back starts at the older snapshot's own next event."""
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()], chunks=[rows.chunk()]))
    newer = rows.snapshot(seq=8, offset=20)
    await store.commit(rows.commit(row, runs=[rows.run(seq=8)], snapshots=[newer], next_events=[("run", 5, 12, 11)]))
    stored = (await store.load_runs(["run"]))["run"]
    assert stored.snapshots == (newer, rows.snapshot(next_offset=12, next_epoch=11))


async def test_chunks_come_back_in_order_and_complete(store: AnyStore) -> None:
    chunks = [rows.chunk(first_index=index, count=1, data=bytes([index]) * 1000) for index in (0, 1, 2)]
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()], chunks=chunks[:2]))
    await store.commit(rows.commit(row, snapshots=[rows.snapshot(seq=6)], chunks=chunks[2:]))
    assert (await store.load_runs(["run"]))["run"].chunks == tuple(chunks)


async def test_chunks_replace_what_a_set_aside_snapshot_left_behind(store: AnyStore) -> None:
    left = [rows.chunk(first_index=0), rows.chunk(first_index=3, count=1), rows.chunk(first_index=4, count=1)]
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()], chunks=left))
    better = rows.chunk(first_index=3, count=5, data=b"better")
    await store.commit(rows.commit(row, snapshots=[rows.snapshot(seq=9)], chunks=[better]))
    assert (await store.load_runs(["run"]))["run"].chunks == (left[0], better)


async def test_waits_open_and_close_and_come_back_oldest_first(store: AnyStore) -> None:
    gate = rows.wait(
        tool="publish", tool_call_id="c", arguments=BlobRef("cd" * 32, 9), arguments_digest="cd" * 32, expires_at=5
    )
    other = rows.wait(wait_id="other:1", run_id="other", opened_at=2000)
    row = await store.commit(rows.commit(opened_waits=[gate, other]))
    assert await store.waits() == [other, gate]
    assert await store.waits("run") == [gate]
    await store.commit(rows.commit(row, closed_waits=[("run", "run:3")]))
    assert await store.waits() == [other]


async def test_a_wait_of_the_same_step_may_close_and_open_in_one_commit(store: AnyStore) -> None:
    row = await store.commit(rows.commit(opened_waits=[rows.wait()]))
    again = rows.wait(seq=9, opened_at=9000)
    await store.commit(rows.commit(row, closed_waits=[("run", "run:3")], opened_waits=[again]))
    assert await store.waits() == [again]


async def test_a_rebuilt_run_keeps_the_waits_that_are_still_open(store: AnyStore) -> None:
    gone, other = rows.wait(wait_id="run:9"), rows.wait(wait_id="other:1", run_id="other")
    row = await store.commit(rows.commit(opened_waits=[rows.wait(), gone, other]))
    await store.commit(rows.commit(row, rebuilt=["run"], opened_waits=[rows.wait(opened_at=7777)]))
    assert {wait.wait_id: wait.opened_at for wait in await store.waits()} == {"run:3": 3000, "other:1": 3000}
