"""The contract of ``ports.effects``: one effect per key, its outcome known or honestly unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runfold.core.events import Outcome
from runfold.ports.agents import Begun, Returned
from runfold.ports.effects import Effect, EffectsTable, EffectsUnavailable, KeyHeld
from tests.contract.effects.conftest import Tables

DONE = Returned(Outcome.SUCCESS, b'{"id":1}', for_model=b'"one"', patch=b'{"k":2}')
TOLD = Returned(Outcome.FAILED, b'"no such account"')
STORED = Returned(Outcome.SUCCESS, b'{"id":1}', for_model=b'"one"', patch=b'{"k":2}', from_table=True)
FIRST, SECOND, THIRD = (Effect("run", 2, attempt) for attempt in (1, 2, 3))
WAIT_S, HOLD_S = 20.0, 30.0


def writes(tables: Tables, what: str, returned: Returned = DONE) -> Callable[[Any], Awaitable[Returned]]:
    """Make a tool that writes and returns."""

    async def work(connection: Any) -> Returned:
        await tables.write(connection, what)
        return returned

    return work


async def never(_: Any) -> Returned:
    """Be a tool that must not be called."""
    raise AssertionError("called")


async def perform(table: EffectsTable, effect: Effect, work: Any, wait_s: float = WAIT_S) -> Returned | Begun:
    """Execute with ample time."""
    return await table.perform(effect, wait_s, HOLD_S, work)


# --- TRANSACTIONAL ----------------------------------------------------------------------------------------------


async def test_the_writes_and_the_outcome_are_there_together(tables: Tables) -> None:
    """Nothing is seen of either before, both are after; and large results are stored whole."""
    seen: list[Any] = []
    large = Returned(Outcome.SUCCESS, b'"' + b"x" * 3_000_000 + b'"')

    async def work(connection: Any) -> Returned:
        await tables.write(connection, "a")
        seen.append((await tables.written(), await tables.other.find("run", 2)))
        return large

    assert await perform(tables.one, FIRST, work) == large
    assert seen == [([], None)]
    assert await tables.written() == ["a"]
    found = await tables.other.find("run", 2)
    assert isinstance(found, Returned)
    assert found.result == large.result


async def test_a_key_that_has_had_its_effect_gives_its_outcome_and_is_not_executed(tables: Tables) -> None:
    await perform(tables.one, FIRST, writes(tables, "a"))
    assert await perform(tables.other, SECOND, never) == STORED
    assert await perform(tables.one, FIRST, never) == STORED
    assert await tables.written() == ["a"]


async def test_a_failure_undoes_the_writes_and_is_stored(tables: Tables) -> None:
    """So an earlier attempt that is paused somewhere can never commit after the model was told of it."""
    assert await perform(tables.one, FIRST, writes(tables, "a", TOLD)) == TOLD
    assert await tables.written() == []
    assert await perform(tables.other, SECOND, never) == Returned(Outcome.FAILED, TOLD.result, from_table=True)


async def test_an_exception_undoes_everything_and_the_key_is_free(tables: Tables) -> None:
    async def work(connection: Any) -> Returned:
        await tables.write(connection, "a")
        raise RuntimeError("connection reset")

    with pytest.raises(RuntimeError, match="connection reset"):
        await perform(tables.one, FIRST, work)
    assert await tables.one.find("run", 2) is None
    assert await perform(tables.other, SECOND, writes(tables, "b")) == DONE
    assert await tables.written() == ["b"]


async def test_a_cancelled_execution_undoes_everything(tables: Tables) -> None:
    """A time-out is a cancellation."""
    is_in = asyncio.Event()

    async def work(connection: Any) -> Returned:
        await tables.write(connection, "a")
        is_in.set()
        await asyncio.Event().wait()
        return DONE

    task = asyncio.create_task(perform(tables.one, FIRST, work))
    await is_in.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await perform(tables.other, SECOND, writes(tables, "b")) == DONE
    assert await tables.written() == ["b"]


@pytest.mark.parametrize("is_successful", [True, False])
async def test_a_second_execution_waits_for_the_first(tables: Tables, *, is_successful: bool) -> None:
    """And then finds its outcome, or, where it was undone, executes."""
    is_in, go_on = asyncio.Event(), asyncio.Event()

    async def slow(connection: Any) -> Returned:
        await tables.write(connection, "slow")
        is_in.set()
        await go_on.wait()
        if not is_successful:
            raise RuntimeError("no")
        return DONE

    first = asyncio.create_task(perform(tables.one, FIRST, slow))
    await is_in.wait()
    second = asyncio.create_task(perform(tables.other, SECOND, writes(tables, "second")))
    closing = asyncio.create_task(tables.other.close(THIRD, TOLD, WAIT_S)) if is_successful else None
    done, _ = await asyncio.wait({second, *([closing] if closing else [])}, timeout=0.3)
    assert not done
    assert await tables.other.find("run", 2) is None  # a plain read that finds nothing proves nothing
    go_on.set()
    if is_successful:
        assert (await first, await second) == (DONE, STORED)
        assert closing is not None
        assert await closing == STORED
        assert await tables.written() == ["slow"]
    else:
        with pytest.raises(RuntimeError):
            await first
        assert await second == DONE
        assert await tables.written() == ["second"]


async def test_nobody_waits_longer_than_its_own_time(tables: Tables) -> None:
    is_in, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Any) -> Returned:
        is_in.set()
        await go_on.wait()
        return DONE

    first = asyncio.create_task(perform(tables.one, FIRST, slow))
    await is_in.wait()
    with pytest.raises(KeyHeld):
        await perform(tables.other, SECOND, never, wait_s=0.2)
    with pytest.raises(KeyHeld):
        await tables.other.close(SECOND, TOLD, 0.2)
    go_on.set()
    assert await first == DONE


async def test_a_paused_zombie_does_not_hold_its_key_for_ever(tables: Tables) -> None:
    """Its session is ended; what it wrote is undone, and it can commit nothing when it wakes up."""
    is_in, wake_up = asyncio.Event(), asyncio.Event()

    async def zombie(connection: Any) -> Returned:
        await tables.write(connection, "zombie")
        is_in.set()
        await wake_up.wait()
        await tables.write(connection, "zombie again")
        return DONE

    first = asyncio.create_task(tables.one.perform(FIRST, WAIT_S, 0.5, zombie))
    await is_in.wait()
    assert await perform(tables.other, SECOND, writes(tables, "second")) == DONE
    wake_up.set()
    with pytest.raises(Exception, match=r"idle|closed|terminat"):
        await first
    assert await tables.written() == ["second"]


async def test_a_closed_key_is_never_executed(tables: Tables) -> None:
    """Whoever closes it first has said how it ended; a key that has an outcome keeps it."""
    closed = await tables.one.close(FIRST, TOLD, WAIT_S)
    assert closed == Returned(Outcome.FAILED, TOLD.result, from_table=True)
    assert await perform(tables.other, SECOND, never) == closed
    assert await tables.other.claim(SECOND, 0, "h") == closed
    assert await tables.other.close(SECOND, DONE, WAIT_S) == closed
    await perform(tables.one, Effect("run", 3, 1), writes(tables, "a"))
    assert await tables.one.close(Effect("run", 3, 2), TOLD, WAIT_S) == STORED


async def test_keys_do_not_disturb_each_other(tables: Tables) -> None:
    """Other runs and other steps are other keys."""
    effects = [Effect("run", 2, 1), Effect("run", 3, 1), Effect("run-2", 2, 1)]
    await asyncio.gather(*(perform(tables.one, one, writes(tables, one.run_id)) for one in effects))
    assert sorted(await tables.written()) == ["run", "run", "run-2"]


# --- dedupe -----------------------------------------------------------------------------------------------------


async def test_a_claim_is_granted_once(tables: Tables) -> None:
    """To the same execution again, whose first answer may have been lost; not to another attempt or process."""
    assert await tables.one.claim(FIRST, 0, "h1") is None
    assert await tables.one.claim(FIRST, 0, "h1") is None
    assert await tables.other.claim(FIRST, 0, "h2") == Begun(1)
    assert await tables.other.claim(SECOND, 0, "h2") == Begun(1)
    assert await tables.other.find("run", 2) == Begun(1)


async def test_the_outcome_of_a_claimed_call_is_found(tables: Tables) -> None:
    await tables.one.claim(FIRST, 0, "h1")
    await tables.one.record(FIRST, "h1", DONE)
    assert await tables.other.claim(SECOND, 1, "h2") == STORED
    assert await tables.other.find("run", 2) == STORED


async def test_a_released_claim_leaves_nothing(tables: Tables) -> None:
    await tables.one.claim(FIRST, 0, "h1")
    await tables.one.release(FIRST, "another")
    assert await tables.one.find("run", 2) == Begun(1)
    await tables.one.release(FIRST, "h1")
    assert await tables.one.find("run", 2) is None
    assert await tables.other.claim(SECOND, 0, "h2") is None


async def test_a_claim_that_is_known_to_be_void_is_taken_over(tables: Tables) -> None:
    """By a higher attempt only; the zombie's later claim and outcome change nothing."""
    await tables.one.claim(FIRST, 0, "h1")
    assert await tables.other.claim(SECOND, 1, "h2") is None
    assert await tables.one.claim(FIRST, 0, "h1") == Begun(2)
    await tables.one.record(FIRST, "h1", TOLD)
    assert await tables.other.find("run", 2) == Begun(2)
    assert await tables.other.claim(THIRD, 1, "h3") == Begun(2)
    await tables.other.record(SECOND, "h2", DONE)
    assert await tables.one.find("run", 2) == STORED


async def test_a_claimed_key_is_not_closed(tables: Tables) -> None:
    """Nobody knows how it ended, and closing it would say that somebody does."""
    await tables.one.claim(FIRST, 0, "h1")
    assert await tables.other.close(SECOND, TOLD, WAIT_S) == Begun(1)


async def test_many_claims_at_once_have_one_winner(tables: Tables) -> None:
    claims = [tables.one.claim(Effect("run", 2, n), 0, f"h{n}") for n in range(1, 9)]
    answers = await asyncio.gather(*claims)
    assert answers.count(None) == 1
    assert {type(answer) for answer in answers if answer is not None} == {Begun}


async def test_unavailable_is_said_as_such() -> None:
    """Whoever asks tries again; it is never taken for "not found"."""
    from runfold.adapters.memory import MemoryEffects, MemoryEffectsDatabase  # noqa: PLC0415 - this test only
    from runfold.adapters.postgres.effects import PostgresEffects  # noqa: PLC0415

    away = PostgresEffects("postgresql://u@127.0.0.1:1/d", "runfold", timeout_s=0.5)
    await away.open()
    for table in (MemoryEffects(MemoryEffectsDatabase(available=False)), away):
        for question in (
            table.find("run", 2),
            table.close(FIRST, TOLD, 0.1),
            table.claim(FIRST, 0, "h"),
            table.record(FIRST, "h", DONE),
            table.release(FIRST, "h"),
            table.perform(FIRST, 0.2, HOLD_S, never),
        ):
            with pytest.raises(EffectsUnavailable):
                await question
    await away.close_pools()
