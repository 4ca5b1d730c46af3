"""Which dangling calls a reconciler gets. The same for memory and Postgres.

No test waits: a grace of minus a thousand seconds makes every call overdue, a lease of zero seconds is over at once.
"""

import asyncio

from runfold.core.events import Recovery, WaitReason
from runfold.core.state import Status
from runfold.ports.store import OpenCallRow
from tests.contract.store import rows
from tests.contract.store.conftest import AnyStore

OVERDUE = -1000.0
EARLY = 1000.0


async def _open(store: AnyStore, *calls: OpenCallRow, epoch: int = 4) -> None:
    known = await store.partition(3)
    row = rows.partition(epoch=epoch, version=0 if known is None else known.version)
    await store.commit(rows.commit(row, opened_calls=list(calls)))


async def _due(store: AnyStore, grace_s: float, holder: str = "me", lease_s: float = 60.0) -> list[int]:
    return [due.call.step for due in await store.lease_due(holder, 10, grace_s, lease_s)]


async def test_a_call_comes_back_as_it_was_written(store: AnyStore) -> None:
    await _open(store, rows.call(), epoch=5)
    [due] = await store.lease_due("me", 10, EARLY, 60.0)
    assert due.call == rows.call()
    assert (due.owner_gone, due.overdue, due.tries) == (True, False, 0)


async def test_a_living_owner_s_call_is_left_alone_until_its_time_is_over(store: AnyStore) -> None:
    await _open(store, rows.call())
    assert await _due(store, EARLY) == []
    [due] = await store.lease_due("me", 10, OVERDUE, 60.0)
    assert (due.owner_gone, due.overdue) == (False, True)


async def test_a_manual_call_is_due_only_when_its_time_is_over(store: AnyStore) -> None:
    """Interleaving 3: a dead owner is not enough to call it indeterminate."""
    await _open(store, rows.call(recovery=Recovery.MANUAL), epoch=5)
    assert await _due(store, EARLY) == []
    assert await _due(store, OVERDUE) == [2]


async def test_calls_that_the_owner_recovers_are_never_leased(store: AnyStore) -> None:
    others = [Recovery.RERUN, Recovery.KEYED, Recovery.TRANSACTIONAL]
    await _open(store, *(rows.call(step=step, recovery=recovery) for step, recovery in enumerate(others)), epoch=5)
    assert await _due(store, OVERDUE) == []


async def test_a_leased_call_is_left_alone_until_the_lease_is_over(store: AnyStore) -> None:
    await _open(store, rows.call())
    assert await _due(store, OVERDUE, "one", lease_s=60.0) == [2]
    assert await _due(store, OVERDUE, "two") == []
    await store.postpone(rows.call(), "one", 0.0, 1)
    [due] = await store.lease_due("two", 10, OVERDUE, 60.0)
    assert due.tries == 1


async def test_only_the_holder_of_this_attempt_postpones(store: AnyStore) -> None:
    await _open(store, rows.call())
    assert await _due(store, OVERDUE, "one", lease_s=60.0) == [2]
    await store.postpone(rows.call(), "two", 0.0, 1)
    await store.postpone(rows.call(attempt=2), "one", 0.0, 1)
    assert await _due(store, OVERDUE, "two") == []


async def test_two_reconcilers_at_once_share_the_calls(store: AnyStore) -> None:
    await _open(store, *(rows.call(step=step) for step in range(20)))
    leased = await asyncio.gather(*(store.lease_due(f"r{index}", 20, OVERDUE, 60.0) for index in range(4)))
    steps = [due.call.step for batch in leased for due in batch]
    assert sorted(steps) == list(range(20))


async def test_no_more_than_the_limit_is_leased(store: AnyStore) -> None:
    await _open(store, *(rows.call(step=step) for step in range(5)))
    assert len(await store.lease_due("me", 3, OVERDUE, 60.0)) == 3
    assert len(await store.lease_due("me", 3, OVERDUE, 60.0)) == 2


async def test_a_new_attempt_is_nobody_s_and_has_no_tries(store: AnyStore) -> None:
    """Interleaving 17: what was found out about attempt 1 says nothing about attempt 2."""
    await _open(store, rows.call())
    assert await _due(store, OVERDUE, lease_s=60.0) == [2]
    await store.postpone(rows.call(), "me", 60.0, 3)
    await _open(store, rows.call(attempt=2))
    [due] = await store.lease_due("other", 10, OVERDUE, 60.0)
    assert (due.call.attempt, due.tries) == (2, 0)


async def test_an_endless_time_out_does_not_stop_the_others(store: AnyStore) -> None:
    await _open(store, rows.call(step=1, timeout_ms=2**62), rows.call(step=2))
    assert await _due(store, OVERDUE) == [2]


async def test_a_closed_call_is_not_due_and_its_lease_is_gone(store: AnyStore) -> None:
    await _open(store, rows.call())
    assert await _due(store, OVERDUE, lease_s=60.0) == [2]
    row = await store.partition(3)
    row = await store.commit(rows.commit(row, closed_calls=[("run", 2)]))
    assert await _due(store, OVERDUE) == []
    await store.commit(rows.commit(row, opened_calls=[rows.call()]))
    assert await _due(store, OVERDUE, "other") == [2]


async def test_a_rebuilt_run_loses_the_calls_that_are_not_open_any_more(store: AnyStore) -> None:
    await _open(store, rows.call(), rows.call(step=5), rows.call(run_id="other", step=7))
    row = await store.partition(3)
    await store.commit(rows.commit(row, rebuilt=["run"], opened_calls=[rows.call()]))
    assert sorted(await _due(store, OVERDUE)) == [2, 7]


async def test_a_call_of_a_run_that_is_held_back_is_left_alone_until_the_run_is_lifted(store: AnyStore) -> None:
    """Its verdict could not be used, and would be asked for again and again."""
    wait = rows.wait(wait_id="run:3", reason=WaitReason.VERSION_MISMATCH)
    row = await store.commit(rows.commit(rows.partition(epoch=5), opened_calls=[rows.call()], opened_waits=[wait]))
    assert await _due(store, OVERDUE) == []
    await store.commit(rows.commit(row, closed_waits=[("run", "run:3")]))
    assert await _due(store, OVERDUE) == [2]


async def test_a_call_of_a_held_run_is_due_once_the_run_is_being_cancelled(store: AnyStore) -> None:
    """It cannot end before somebody knows what became of the call, and nobody lifts what holds it any more."""
    wait = rows.wait(wait_id="run:3", reason=WaitReason.ERROR)
    held = rows.run(status=Status.WAITING)
    row = await store.commit(
        rows.commit(rows.partition(epoch=5), runs=[held], opened_calls=[rows.call()], opened_waits=[wait])
    )
    assert await _due(store, OVERDUE) == []
    await store.commit(rows.commit(row, runs=[rows.run(seq=6, status=Status.RUNNING)]))
    assert await _due(store, OVERDUE) == [2]
