"""The contract of ``ports.drains``, in memory and on Kafka."""

from __future__ import annotations

from tests.contract.worlds import World


async def test_a_mark_stands_until_it_is_cleared(world: World) -> None:
    """Others see it; partitions that were not named have none."""
    old, new = world.drains(), world.drains()
    assert await new.marks([0, 1, 2]) == {}
    await old.mark([0, 2])
    found = await new.marks([0, 1, 2])
    assert set(found) == {0, 2}
    assert await new.marks([0, 1, 2]) == found
    await old.clear([0])
    assert set(await new.marks([0, 1, 2])) == {2}
    await old.clear([2])
    assert await new.marks([0, 1, 2]) == {}


async def test_a_mark_that_is_said_again_is_another_one(world: World) -> None:
    """That is how the next owner sees that somebody is behind it."""
    drains = world.drains()
    await drains.mark([1])
    first = await drains.marks([1])
    await drains.mark([1])
    second = await drains.marks([1])
    assert set(first) == set(second) == {1}
    assert first != second


async def test_clearing_what_is_not_marked_is_fine(world: World) -> None:
    """A new owner clears a mark of a dead process that may just have been cleared."""
    drains = world.drains()
    await drains.clear([3])
    assert await drains.marks([3]) == {}
