"""The right to act on an acknowledgement: how long it lasts, what ends it, and who asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from runfold.core.events import UNKNOWN_VERSION, AskedCall, Recovery
from runfold.core.payload import Inline
from runfold.core.state import Call, State
from runfold.ports.agents import Invocation, ModelFailure, NotStarted, RunningAgent, Unknown
from runfold.runtime.executor.effects import EffectOutcome
from runfold.runtime.executor.settings import ExecutorSettings
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.executor.work import Permit, ask_model, execute, invocation
from runfold.runtime.payloads import Payloads
from runfold.testing.simulation.loop import run_virtual

PRODUCED_AT = 1000.0
FRESH_S = 5.0


@dataclass
class _Clock:
    """Stands still until it is moved."""

    now: float = PRODUCED_AT

    def elapsed(self) -> float:
        return self.now


@dataclass
class _Agent:
    """Notes what it is asked."""

    asked: list[Invocation | None] = field(default_factory=list)

    async def ask_model(self, *_: object) -> ModelFailure:
        self.asked.append(None)
        return ModelFailure("no", retryable=False)

    async def execute(self, invocation: Invocation) -> Unknown:
        self.asked.append(invocation)
        return Unknown("no")


def _permit(clock: _Clock, over: asyncio.Future[str] | None = None) -> Permit:
    """A permit of a tenure that has nothing but what a permit looks at."""
    metrics = SimpleNamespace(step_performed=lambda *_: None)
    world = SimpleNamespace(clock=clock, settings=ExecutorSettings("p0", 1, freshness_s=FRESH_S), metrics=metrics)
    writer = SimpleNamespace(over=over or asyncio.get_running_loop().create_future())
    return Permit(cast("Tenure", SimpleNamespace(world=world, writer=writer)), PRODUCED_AT)


async def _execute(agent: _Agent, permit: Permit, timeout_s: float) -> EffectOutcome:
    """Execute a call whose request asked for so much time."""
    state = State("r1", "a", Inline(b"{}"), UNKNOWN_VERSION, started_at=0)
    call = Call(AskedCall("call", "act", Inline(b"{}")), recovery=Recovery.MANUAL)
    payloads = cast("Payloads", None)  # nothing is read: the state holds no values
    prepared = await invocation(payloads, state, call, 2, 1, timeout_s, b"{}", permit=permit)
    return await execute(cast("RunningAgent", agent), permit.tenure.world, prepared)


@pytest.mark.parametrize(("age", "is_good"), [(0.0, True), (4.9, True), (5.0, True), (5.1, False), (3600.0, False)])
def test_it_lasts_half_a_session_from_the_produce(age: float, *, is_good: bool) -> None:
    """By the clock that counts suspended time; the very bound is still good."""

    async def main() -> None:
        clock = _Clock()
        permit = _permit(clock)
        clock.now += age
        assert permit.age() == pytest.approx(age)
        assert permit.is_good() is is_good

    run_virtual(main())


def test_it_ends_with_its_epoch() -> None:
    """However fresh it is."""

    async def main() -> None:
        over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        permit = _permit(_Clock(), over)
        assert permit.is_good()
        over.set_result("another claim")
        assert not permit.is_good()

    run_virtual(main())


@pytest.mark.parametrize("age", [4.0, 6.0])
def test_a_model_is_asked_only_with_a_good_permit(age: float) -> None:
    """Asked at the last moment, and nothing is asked without it."""

    async def main() -> None:
        agent, clock = _Agent(), _Clock()
        permit = _permit(clock)
        clock.now += age
        outcome = await ask_model(cast("RunningAgent", agent), permit, "r1", [])
        assert isinstance(outcome, NotStarted) is (age > FRESH_S)
        assert len(agent.asked) == (0 if age > FRESH_S else 1)

    run_virtual(main())


def test_a_tool_gets_the_permit_and_the_time_that_is_left_since_the_produce() -> None:
    """Three of ten seconds have passed: seven are left, and the SDK can ask again right before the call."""

    async def main() -> None:
        agent, clock = _Agent(), _Clock()
        permit = _permit(clock)
        clock.now += 3
        await _execute(agent, permit, 10.0)
        [asked] = agent.asked
        assert asked is not None
        assert asked.timeout_s == pytest.approx(7.0)
        assert asked.may_start()
        clock.now += 3
        assert not asked.may_start()

    run_virtual(main())


@pytest.mark.parametrize("age", [2.0, 2.5])
def test_a_tool_whose_time_is_over_is_not_started(age: float) -> None:
    """Its time-out is shorter than the freshness: its own time counts."""

    async def main() -> None:
        agent, clock = _Agent(), _Clock()
        permit = _permit(clock)
        clock.now += age
        assert permit.is_good()
        outcome = await _execute(agent, permit, 2.0)
        assert isinstance(outcome, NotStarted)
        assert not agent.asked

    run_virtual(main())
