"""Effects of a process: they outlive an epoch, and tell exactly who listens."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from runfold.ports.agents import Unknown
from runfold.runtime.executor.effects import Crashed, EffectKey, EffectOutcome, Effects
from runfold.testing.simulation.loop import run_virtual

KEY = EffectKey("r1", 2, 1)
OLD, NEW = (0, 0), (0, 7)
Heard = list[tuple[EffectKey, EffectOutcome]]


class Ear:
    """Hears outcomes."""

    def __init__(self) -> None:
        self.heard: Heard = []

    def __call__(self, key: EffectKey, outcome: EffectOutcome) -> None:
        """Hear one."""
        self.heard.append((key, outcome))


async def _answer(gate: asyncio.Event) -> EffectOutcome:
    await gate.wait()
    return Unknown("x")


def test_a_tenure_that_is_over_hears_nothing_more_and_the_outcome_is_kept() -> None:
    """It ends between two tenures: the next one is told as soon as it attaches, exactly once."""

    async def main() -> None:
        gate, old, new = asyncio.Event(), Ear(), Ear()
        async with asyncio.TaskGroup() as group:
            effects = Effects(group)
            effects.start(KEY, OLD, partial(_answer, gate), old)
            effects.detach(*OLD)
            gate.set()
            await asyncio.sleep(1)
            assert old.heard == []
            assert effects.alive(KEY)
            assert effects.running(0) == 0
            assert effects.runs(0) == {"r1"}
            effects.attach(KEY, NEW[1], new)
            assert new.heard == [(KEY, Unknown("x"))]

    run_virtual(main())


def test_an_effect_that_a_new_tenure_listens_to_is_not_detached_by_the_old_ones_end() -> None:
    """An owner may end late, after the next one has attached."""

    async def main() -> None:
        gate, old, new = asyncio.Event(), Ear(), Ear()
        async with asyncio.TaskGroup() as group:
            effects = Effects(group)
            effects.start(KEY, OLD, partial(_answer, gate), old)
            effects.attach(KEY, NEW[1], new)
            effects.detach(*OLD)
            gate.set()
            await asyncio.sleep(1)
            assert old.heard == []
            assert new.heard == [(KEY, Unknown("x"))]

    run_virtual(main())


def test_another_partition_is_not_detached() -> None:
    """Epochs are offsets: those of two partitions may be equal."""

    async def main() -> None:
        gate, ear = asyncio.Event(), Ear()
        async with asyncio.TaskGroup() as group:
            effects = Effects(group)
            effects.start(KEY, (1, 0), partial(_answer, gate), ear)
            effects.detach(0, 0)
            gate.set()
            await asyncio.sleep(1)
            assert len(ear.heard) == 1

    run_virtual(main())


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
def test_an_effect_that_raises_is_told_as_crashed(error: BaseException) -> None:
    """Neither the group nor the run may wait for ever; a cancellation of its own making is no exception."""

    async def work() -> EffectOutcome:
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        ear = Ear()
        async with asyncio.TaskGroup() as group:
            Effects(group).start(KEY, OLD, work, ear)
        [(_, outcome)] = ear.heard
        assert isinstance(outcome, Crashed)

    run_virtual(main())


def test_what_is_forgotten_is_gone() -> None:
    """Forgetting one attempt's lookup leaves the attempt."""

    async def main() -> None:
        gate, ear = asyncio.Event(), Ear()
        other = KEY._replace(lookup=True)
        async with asyncio.TaskGroup() as group:
            effects = Effects(group)
            effects.start(KEY, OLD, partial(_answer, gate), ear)
            effects.start(other, OLD, partial(_answer, gate), ear)
            effects.forget(other)
            assert effects.keys("r1") == [KEY]
            assert not effects.alive(other)
            effects.forget(KEY)
            assert effects.runs(0) == set()
            gate.set()

    run_virtual(main())


def test_what_is_in_flight_when_the_process_ends_is_cancelled_and_tells_nothing() -> None:
    """Its outcome is for the next owner to find out."""

    async def main() -> None:
        ear = Ear()
        async with asyncio.TaskGroup() as group:
            effects = Effects(group)
            effects.start(KEY, OLD, partial(_answer, asyncio.Event()), ear)
            await asyncio.sleep(1)
            effects.cancel()
        assert ear.heard == []

    run_virtual(main())
