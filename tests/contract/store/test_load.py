"""What is read at a take-over. The same for memory and Postgres."""

from runfold.core.events import WaitReason
from runfold.core.state import Status
from runfold.ports.store import Watermark
from tests.contract.store import rows
from tests.contract.store.conftest import AnyStore


async def _active(store: AnyStore) -> list[str]:
    _, runs = await store.load_partition(3)
    return sorted(run.run_id for run in runs)


async def test_a_partition_that_was_never_committed_has_no_row(store: AnyStore) -> None:
    assert await store.load_partition(3) == (None, [])
    assert await store.partition(3) is None


async def test_a_take_over_reads_what_has_to_be_in_memory(store: AnyStore) -> None:
    """Running, parked, uncovered and held-back runs; not those at rest, in the tail, or elsewhere."""
    waiting = Status.WAITING
    runs = {
        "running": rows.run("running"),
        "parked": rows.run("parked", status=waiting, parked="poison"),
        "uncovered": rows.run("uncovered", status=waiting, seq=6),
        "held-back": rows.run("held-back", status=waiting),
        "unknown": rows.run("unknown", status=waiting),
        "waiting": rows.run("waiting", status=waiting),
        "ended": rows.run("ended", status=Status.COMPLETED),
        "elsewhere": rows.run("elsewhere", partition=4),
    }
    waits = [
        rows.wait(wait_id="h:1", run_id="held-back", reason=WaitReason.VERSION_MISMATCH),
        rows.wait(wait_id="u:1", run_id="unknown", reason=WaitReason.UNKNOWN_AGENT),
        rows.wait(wait_id="w:1", run_id="waiting"),
    ]
    snapshots = [rows.snapshot(run_id) for run_id in runs]
    in_tail = rows.run("in-tail")
    await store.commit(rows.commit(runs=[*runs.values(), in_tail], snapshots=snapshots, opened_waits=waits))
    row, _ = await store.load_partition(3)
    assert row is not None
    assert row.version == 1
    assert await _active(store) == ["held-back", "parked", "running", "uncovered", "unknown"]


async def test_a_covered_run_leaves_the_take_over_once_it_waits(store: AnyStore) -> None:
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()]))
    assert await _active(store) == ["run"]
    waits = rows.run(status=Status.WAITING, seq=6)
    await store.commit(rows.commit(row, runs=[waits], snapshots=[rows.snapshot(seq=6)]))
    assert await _active(store) == []


async def test_a_stored_run_has_its_first_event_snapshots_and_chunks(store: AnyStore) -> None:
    await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()], chunks=[rows.chunk()]))
    _, [run] = await store.load_partition(3)
    assert (run.run_id, run.partition, run.seq, run.first_offset, run.first_epoch) == ("run", 3, 5, 1, 0)
    assert run.snapshots == (rows.snapshot(),)
    assert run.chunks == (rows.chunk(),)
    assert await store.load_runs(["run", "nobody"]) == {"run": run}
    assert await store.load_runs([]) == {}


async def test_a_run_without_a_snapshot_can_be_loaded_by_id(store: AnyStore) -> None:
    """Interleaving 13: "no such run" is never answered from memory alone."""
    await store.commit(rows.commit(runs=[rows.run()]))
    stored = (await store.load_runs(["run"]))["run"]
    assert (stored.snapshots, stored.chunks, stored.first_offset) == ((), (), 1)


async def test_covered_means_a_snapshot_at_exactly_that_event(store: AnyStore) -> None:
    await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot(), rows.snapshot("other", seq=2)]))
    watermark = Watermark("cluster", "topic", 10)
    assert await store.covered_as_of(3, {"run": 5, "other": 3, "nobody": 1}) == (watermark, {"run"})
    assert await store.covered_as_of(4, {}) == (None, set())


async def test_a_watermark_says_how_far_its_partition_was_folded(store: AnyStore) -> None:
    """So that what a restored database does not know is not taken for what does not exist."""
    assert await store.load_runs_as_of(3, ["run"]) == (None, {})
    row = await store.commit(rows.commit(runs=[rows.run()], snapshots=[rows.snapshot()]))
    watermark, found = await store.load_runs_as_of(3, ["run", "nobody"])
    assert watermark == row.watermark == Watermark("cluster", "topic", 10)
    assert found == await store.load_runs(["run"])


async def test_runs_are_found_by_where_their_last_event_stands(store: AnyStore) -> None:
    """Oldest first; those of other partitions are not among them."""
    found = {"early": 5, "late": 9, "later": 12}
    runs = [rows.run(run_id, last_offset=offset) for run_id, offset in found.items()]
    await store.commit(rows.commit(runs=[*runs, rows.run("elsewhere", partition=4, last_offset=50)]))
    assert await store.runs_from(3, 9, 10) == ["late", "later"]
    assert await store.runs_from(3, 9, 1) == ["late"]


async def test_runs_are_listed_newest_first_and_filtered(store: AnyStore) -> None:
    runs = [
        rows.run("old", started_at=1, agent="a"),
        rows.run("new", started_at=3, agent="b"),
        rows.run("ended", started_at=2, agent="a", status=Status.COMPLETED),
    ]
    await store.commit(rows.commit(runs=runs))

    async def ids(status: str | None, agent: str | None, limit: int = 10) -> list[str]:
        return [run.run_id for run in await store.runs(status=status, agent=agent, limit=limit)]

    assert await ids(None, None) == ["new", "ended", "old"]
    assert await ids(None, None, 2) == ["new", "ended"]
    assert await ids("completed", None) == ["ended"]
    assert await ids("running", "a") == ["old"]


async def test_the_store_describes_itself(store: AnyStore) -> None:
    assert {"server", "schema", "migrations"} <= set(await store.describe())


async def test_runs_that_are_asked_for_come_with_the_take_over_whatever_their_status(store: AnyStore) -> None:
    """Those of the log's tail: read in the same transaction as the row, each once; the unknown are absent."""
    ended = rows.run("ended", status=Status.COMPLETED)
    await store.commit(rows.commit(runs=[ended, rows.run()], snapshots=[rows.snapshot("ended"), rows.snapshot()]))
    _, runs = await store.load_partition(3, ["ended", "run", "nobody"])
    assert sorted(run.run_id for run in runs) == ["ended", "run"]
