"""The contract of ``ports.membership``, in memory and on Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from runfold.ports.membership import Membership
from tests.contract.worlds import PARTITIONS, World


class Listener:
    """Notes what it is told, and checks that calls never overlap."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.drain = asyncio.Event()
        self.drain.set()
        self.fail_on: str | None = None
        self._busy = False
        self._changed = asyncio.Event()

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Own more."""
        await self._note("assigned", partitions)
        assert self.owned.isdisjoint(partitions)
        self.owned |= set(partitions)

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Own less, once drained."""
        await self._note("revoked", partitions)
        self._busy = True
        await self.drain.wait()
        self._busy = False
        assert self.owned.issuperset(partitions)
        self.owned -= set(partitions)

    async def lost(self, partitions: Sequence[int]) -> None:
        """Own less at once."""
        await self._note("lost", partitions)
        self.owned -= set(partitions)

    async def _note(self, what: str, partitions: Sequence[int]) -> None:
        assert not self._busy
        self._busy = True
        self.calls.append((what, tuple(partitions)))
        await asyncio.sleep(0.01)
        self._busy = False
        self._changed.set()
        if self.fail_on == what:
            raise ZeroDivisionError(what)

    def told(self, what: str) -> set[int]:
        """All partitions that were ever named in such a call."""
        return {number for name, numbers in self.calls if name == what for number in numbers}

    async def until(self, state: Callable[[], bool]) -> None:
        """Wait for a state of this listener."""
        async with asyncio.timeout(40):
            while not state():
                self._changed.clear()
                # A call may still be finishing when it has been noted.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)


async def test_one_member_owns_everything_until_it_leaves(world: World) -> None:
    """``leave`` revokes, and ``run`` returns."""
    member, listener = world.member(), Listener()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(member.run(listener))
        await listener.until(lambda: listener.owned == set(range(PARTITIONS)))
        assert not running.done()
        await member.leave()
        await running
    assert listener.owned == set()
    assert listener.told("revoked") == set(range(PARTITIONS))
    assert listener.told("lost") == set()


async def test_two_members_share_and_what_stays_is_not_revoked(world: World) -> None:
    """A joiner takes half; the other half is never interrupted; when the joiner leaves, its half comes back."""
    first, second = world.member(), world.member()
    one, two = Listener(), Listener()
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run(one))
        await one.until(lambda: len(one.owned) == PARTITIONS)
        group.create_task(second.run(two))
        await two.until(lambda: len(two.owned) == PARTITIONS // 2)
        assert one.owned == set(range(PARTITIONS)) - two.owned
        assert one.told("revoked") == two.owned
        await second.leave()
        await one.until(lambda: len(one.owned) == PARTITIONS)
        assert one.told("lost") == set()
        await first.leave()


async def test_a_partition_moves_only_when_its_owner_has_drained(world: World) -> None:
    """The joiner waits for the slow one."""
    first, second = world.member(), world.member()
    one, two = Listener(), Listener()
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run(one))
        await one.until(lambda: len(one.owned) == PARTITIONS)
        one.drain.clear()
        group.create_task(second.run(two))
        await one.until(lambda: one.told("revoked") != set())
        assert two.owned == set()
        assert len(one.owned) == PARTITIONS
        one.drain.set()
        await two.until(lambda: len(two.owned) == PARTITIONS // 2)
        await first.leave()
        await second.leave()


@pytest.mark.parametrize("call", ["assigned", "revoked"])
async def test_an_error_of_the_listener_is_raised_by_run(world: World, call: str) -> None:
    """And the member is gone, so that another gets everything."""
    member, listener = world.member(), Listener()
    listener.fail_on = call
    running = asyncio.ensure_future(member.run(listener))
    if call == "revoked":
        await listener.until(lambda: len(listener.owned) == PARTITIONS)
        await member.leave()
    with pytest.raises(ZeroDivisionError, match=call):
        await running
    await _owns_everything_soon(world.member())


async def test_a_member_whose_run_is_cancelled_is_gone(world: World) -> None:
    """Its listener hears nothing more; another gets everything, without waiting for a session to expire."""
    member, listener = world.member(), Listener()
    running = asyncio.ensure_future(member.run(listener))
    await listener.until(lambda: len(listener.owned) == PARTITIONS)
    calls = len(listener.calls)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(listener.calls) == calls
    await _owns_everything_soon(world.member())


async def test_leaving_before_joining_is_fine(world: World) -> None:
    """``run`` then returns without ever owning anything."""
    member, listener = world.member(), Listener()
    await member.leave()
    async with asyncio.timeout(20):
        await member.run(listener)
    assert listener.owned == set()


async def _owns_everything_soon(member: Membership) -> None:
    listener = Listener()
    async with asyncio.TaskGroup() as group:
        group.create_task(member.run(listener))
        async with asyncio.timeout(5):
            await listener.until(lambda: len(listener.owned) == PARTITIONS)
        await member.leave()
