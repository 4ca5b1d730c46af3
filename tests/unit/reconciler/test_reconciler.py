"""The reconciler settles what dead and hung owners left open, and disturbs nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runfold import ABSENT, Absent, Recovery, ToolContext, tool
from runfold.core.payload import Inline
from runfold.runtime.reconciler.settings import ReconcilerSettings
from tests.unit.reconciler.world import World


class Lookups:
    """A tool whose lookup answers as the test says, run by run, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ToolContext[None]] = []
        self.answers: dict[str, object] = {}
        self.hung: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()

        @tool(recovery=Recovery.LOOKUP, timeout=10.0)
        async def create(ctx: ToolContext[None], title: str) -> dict[str, str]:
            raise AssertionError(ctx.run_id + title)  # the reconciler never executes

        @create.lookup
        async def find(ctx: ToolContext[None], title: str) -> dict[str, str] | Absent:
            self.asked.append(ctx)
            answer = self.answers.get(ctx.run_id, {"id": title})
            if isinstance(answer, BaseException):
                raise answer
            if answer == "hang":
                self.hung.put_nowait(ctx.run_id)
                await self.release.wait()
                answer = {"id": "late"}
            found: Any = answer
            return found  # type: ignore[no-any-return]

        @tool(recovery=Recovery.MANUAL)
        async def wire(amount: int) -> None:
            raise AssertionError(amount)

        self.tools: list[Callable[..., Any]] = [create, wire]


@pytest.fixture
def lookups() -> Lookups:
    """Make the tools."""
    return Lookups()


@pytest.fixture
def world(lookups: Lookups) -> World:
    """Make everything outside the reconciler."""
    return World(lookups.tools)


async def test_a_dead_owners_call_is_looked_up_by_key_and_found(world: World, lookups: Lookups) -> None:
    """Arguments from the object store, state from the snapshot; the verdict goes to the run's partition."""
    arguments = await world.blobs.put(b'{"title":"from a blob"}')
    large = await world.blobs.put(b'"large"')
    await world.open_call("run-1", arguments=arguments, attempt=3, values={"seen": Inline(b"[1]"), "big": large})
    async with world.reconciling():
        verdict = await world.verdict()
        assert (verdict.run_id, verdict.step, verdict.attempt, verdict.outcome) == ("run-1", 18, 3, "found")
        assert verdict.result == b'{"id":"from a blob"}'
        assert verdict.verdict_by == "host:1"
        assert await world.postponed() == ("run-1", world.settings.repeat_s, 0)
    ctx = lookups.asked[0]
    assert (ctx.idempotency_key, ctx.attempt, dict(ctx.state)) == ("run-1:18", 3, {"seen": [1], "big": "large"})


async def test_a_live_owners_call_is_left_alone_until_it_is_overdue(world: World, lookups: Lookups) -> None:
    """A hung owner is found by the clock of the database."""
    await world.open_call("run-live", owner_gone=False)
    await world.open_call("run-dead")
    async with world.reconciling():
        assert (await world.verdict()).run_id == "run-dead"
        world.clock.seconds += 14.0
        await world.open_call("run-probe")
        assert (await world.verdict()).run_id == "run-probe"
        world.clock.seconds += 2.0
        await world.close_call("run-dead")
        await world.close_call("run-probe")
        assert (await world.verdict()).run_id == "run-live"
    assert lookups.asked[-1].run_id == "run-live"


async def test_absent_is_asked_again_until_it_may_be_believed(world: World, lookups: Lookups) -> None:
    """Its time-out and grace after the row's insertion."""
    lookups.answers["run-1"] = ABSENT
    await world.open_call("run-1")
    async with world.reconciling():
        assert await world.postponed() == ("run-1", world.settings.scan_s, 0)
        world.clock.seconds += 15.5
        verdict = await world.verdict()
        assert (verdict.outcome, verdict.attempt) == ("absent", 1)


async def test_a_lookup_that_keeps_failing_ends_with_a_person(world: World, lookups: Lookups) -> None:
    """Five tries, further and further apart."""
    lookups.answers["run-1"] = ValueError("the ticket system is down")
    await world.open_call("run-1")
    async with world.reconciling():
        for tries, delay in enumerate((1.0, 2.0, 4.0, 8.0), start=1):
            assert await world.postponed() == ("run-1", delay, tries)
            world.clock.seconds += delay + 0.25
        verdict = await world.verdict()
        assert (verdict.outcome, verdict.error) == (
            "indeterminate",
            "5 lookups did not decide it; the last: ValueError: the ticket system is down",
        )
    assert len(lookups.asked) == 5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"agent": "gone"}, "the running code has no agent 'gone'"),
        ({"tool": "gone"}, "agent 'one' of the running code has no tool 'gone'"),
        ({"tool": "wire"}, "agent 'one' of the running code has no lookup function for tool 'wire'"),
        ({"arguments": Inline(b'{"name":"x"}')}, "ArgumentsChanged: tool 'create' does not accept"),
    ],
)
async def test_what_the_running_code_cannot_ask_ends_with_a_person(
    world: World, changed: dict[str, Any], said: str
) -> None:
    """After as many tries: another revision may be on its way."""
    await world.open_call("run-1", **changed)
    world.clock.seconds += 16
    async with world.reconciling():
        for delay in (1.0, 2.0, 4.0, 8.0):
            await world.postponed()
            world.clock.seconds += delay + 0.25
        verdict = await world.verdict()
        assert verdict.outcome == "indeterminate"
        assert verdict.error is not None
        assert said in verdict.error


async def test_a_missing_blob_ends_with_a_person_and_a_broken_snapshot_too(world: World) -> None:
    """What the lookup needs is not there: nobody guesses."""
    gone = replace(await world.blobs.put(b"{}"), sha256="0" * 64)
    await world.open_call("run-blob", arguments=gone)
    await world.open_call("run-snapshot", values={"k": Inline(b"1")})
    row = world.database.snapshots["run-snapshot"][40]
    world.database.snapshots["run-snapshot"][40] = replace(row, digest="0" * 64)
    world.clock.seconds += 16
    async with world.reconciling():
        for delay in (1.0, 2.0, 4.0, 8.0):
            assert {(await world.postponed())[0], (await world.postponed())[0]} == {"run-blob", "run-snapshot"}
            world.clock.seconds += delay + 0.25
        verdicts = [await world.verdict(), await world.verdict()]
    assert {one.outcome for one in verdicts} == {"indeterminate"}
    assert all("cannot be read" in (one.error or "") for one in verdicts)


async def test_a_manual_call_becomes_a_persons_matter_when_owner_and_time_are_gone(world: World) -> None:
    """Not before: its owner may still say how it ended."""
    manual: dict[str, Any] = {"recovery": Recovery.MANUAL, "arguments": Inline(b'{"amount":1}')}
    await world.open_call("run-live", "wire", owner_gone=False, **manual)
    await world.open_call("run-dead", "wire", **manual)
    await world.open_call("run-probe")
    async with world.reconciling():
        assert (await world.verdict()).run_id == "run-probe"
        await world.close_call("run-probe")
        world.clock.seconds += 16
        verdict = await world.verdict()
        assert (verdict.run_id, verdict.outcome) == ("run-dead", "indeterminate")
        while (await world.postponed())[0] != "run-live":
            pass
    assert world.publisher.verdicts.empty()


async def test_a_verdict_is_repeated_only_while_the_call_stays_open(world: World, lookups: Lookups) -> None:
    """Not every second; but a verdict that the owner never settled is not forgotten."""
    await world.open_call("run-1")
    async with world.reconciling():
        await world.verdict()
        await world.postponed()
        world.clock.seconds += world.settings.repeat_s - 1
        await world.open_call("run-probe")
        assert (await world.verdict()).run_id == "run-probe"
        await world.postponed()
        await world.close_call("run-probe")
        world.clock.seconds += 2
        assert (await world.verdict()).run_id == "run-1"
        await world.postponed()
        await world.close_call("run-1")
        world.clock.seconds += 1000
        await world.open_call("run-last")
        assert (await world.verdict()).run_id == "run-last"
    assert [ctx.run_id for ctx in lookups.asked] == ["run-1", "run-probe", "run-1", "run-last"]


async def test_a_new_attempt_is_looked_up_afresh(world: World) -> None:
    """A lease and its tries belong to one attempt."""
    await world.open_call("run-1", attempt=1)
    async with world.reconciling():
        assert (await world.verdict()).attempt == 1
        await world.postponed()
        await world.open_call("run-1", attempt=2)
        assert (await world.verdict()).attempt == 2


async def test_a_hanging_lookup_holds_up_nobody_else(world: World, lookups: Lookups) -> None:
    """Others are asked meanwhile; it is unknown at its time-out."""
    lookups.answers["run-hang"] = "hang"
    lookups.answers["run-exit"] = SystemExit(3)
    await world.open_call("run-hang")
    await world.open_call("run-exit")
    async with world.reconciling(lookup_timeout_s=0.1):
        await lookups.hung.get()
        await world.open_call("run-2")
        assert (await world.verdict()).run_id == "run-2"
        seen = {await world.postponed() for _ in range(3)}
        assert ("run-hang", 1.0, 1) in seen
        assert ("run-exit", 1.0, 1) in seen


async def test_a_lookup_that_does_not_end_is_not_waited_for(world: World, lookups: Lookups) -> None:
    """Interleaving 16: while one lookup hangs, long before its time-out, other calls are leased, asked and told."""
    lookups.answers["run-hang"] = "hang"
    await world.open_call("run-hang")
    async with world.reconciling(lookup_timeout_s=30.0), asyncio.timeout(10.0):
        await lookups.hung.get()
        for number in range(3):
            await world.open_call(f"run-{number}")
            assert (await world.verdict()).run_id == f"run-{number}"
        lookups.release.set()
        assert (await world.verdict()).run_id == "run-hang"


async def test_no_more_calls_are_leased_than_can_be_asked_about(world: World, lookups: Lookups) -> None:
    """A lease must not run out in a queue."""
    for number in range(3):
        lookups.answers[f"run-{number}"] = "hang"
        await world.open_call(f"run-{number}")
    async with world.reconciling(concurrency=2):
        await lookups.hung.get()
        await lookups.hung.get()
        assert len(world.database.leases) == 2
        lookups.release.set()
        assert {(await world.verdict()).run_id for _ in range(3)} == {"run-0", "run-1", "run-2"}


async def test_two_reconcilers_do_not_ask_about_one_call(world: World, lookups: Lookups) -> None:
    """The lease is the database's."""
    lookups.answers["run-1"] = "hang"
    await world.open_call("run-1")
    async with world.reconciling("host:1"), world.reconciling("host:2"):
        await lookups.hung.get()
        await world.open_call("run-2")
        assert (await world.verdict()).run_id == "run-2"
        lookups.release.set()
        assert (await world.verdict()).run_id == "run-1"
    assert sorted(ctx.run_id for ctx in lookups.asked) == ["run-1", "run-2"]


async def test_postgres_and_kafka_away_are_waited_for(world: World, lookups: Lookups) -> None:
    """Nothing ends, nothing is lost: the lease runs out and the call is asked about again."""
    world.database.available = False
    async with world.reconciling():
        async with asyncio.timeout(10):
            await world.store.refused.get()
        world.database.available = True
        world.publisher.broken = True
        await world.open_call("run-1")
        async with asyncio.timeout(10):
            await world.publisher.failing.get()
        world.publisher.broken = False
        world.clock.seconds += world.settings.lease_s + 1
        assert (await world.verdict()).run_id == "run-1"
    assert len(lookups.asked) == 2


async def test_a_result_that_no_input_can_hold_ends_with_a_person(world: World, lookups: Lookups) -> None:
    """It is known to have happened: absent would repeat it."""
    lookups.answers["run-1"] = {"id": "x" * 1_100_000}
    await world.open_call("run-1")
    async with world.reconciling():
        verdict = await world.verdict()
    assert verdict.outcome == "indeterminate"
    assert verdict.error is not None
    assert "the lookup found its result, which cannot be sent as a verdict" in verdict.error


async def test_close_waits_for_the_lookups_in_hand(world: World, lookups: Lookups) -> None:
    """Their verdicts are published; nothing more is leased."""
    lookups.answers["run-1"] = "hang"
    await world.open_call("run-1")
    async with world.reconciling() as reconciler:
        await lookups.hung.get()
        closing = asyncio.create_task(reconciler.close())
        await asyncio.sleep(0)
        await world.open_call("run-2")
        lookups.release.set()
        await closing
        assert world.publisher.verdicts.get_nowait().run_id == "run-1"
    assert [ctx.run_id for ctx in lookups.asked] == ["run-1"]


async def test_leaving_with_a_hanging_lookup_ends_in_bounded_time(world: World, lookups: Lookups) -> None:
    """Whoever is there next asks again when the lease is over."""
    lookups.answers["run-1"] = "hang"
    await world.open_call("run-1")
    async with world.reconciling(drain_s=0.02):
        await lookups.hung.get()
    assert world.publisher.verdicts.empty()


async def test_a_store_that_does_not_answer_is_not_waited_for_when_leaving(world: World) -> None:
    """A pool goes on trying for half a minute."""
    world.store.hanging = asyncio.Event()
    async with asyncio.timeout(10), world.reconciling():
        await world.store.hanging.wait()


def test_a_lease_must_outlast_its_lookup() -> None:
    """Otherwise two would ask at once."""
    with pytest.raises(ValueError, match=r"lease_s \(10\) must be longer than lookup_timeout_s \(30\)"):
        ReconcilerSettings("host:1", lease_s=10.0)
