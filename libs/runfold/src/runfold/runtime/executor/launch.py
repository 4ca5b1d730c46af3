"""From an acknowledged request to an effect in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runfold.core.events import ToolCallRequested
from runfold.core.state import Call
from runfold.ports.agents import Message, NotThere, Unknown
from runfold.runtime.executor import work
from runfold.runtime.executor.batch import Request
from runfold.runtime.executor.effects import Crashed, EffectKey, EffectOutcome, Sealed

if TYPE_CHECKING:
    from runfold.runtime.executor.driver import RunDriver


def start(driver: RunDriver, request: Request, produced_at: float) -> None:
    """Perform a request of the batch that was just acknowledged; its effect reports to the driver."""
    key = EffectKey(request.run_id, request.step, request.attempt)
    permit = work.Permit(driver.tenure, produced_at)
    effect = (
        _tool_effect(driver, permit, request)
        if isinstance(request, ToolCallRequested)
        else _model_effect(driver, permit)
    )
    driver.tenure.world.effects.start(key, driver.tenure.place, effect, driver.hear)


def start_lookup(driver: RunDriver, call: Call) -> None:
    """Ask the author's lookup about a call whose outcome this owner does not know."""
    key = EffectKey(driver.run_id, call.step, call.attempt, lookup=True)
    driver.tenure.world.effects.start(key, driver.tenure.place, _lookup_effect(driver, call), driver.hear)


async def _model_effect(driver: RunDriver, permit: work.Permit) -> EffectOutcome:
    agent, state = driver.agent, driver.state
    if agent is None or state is None:
        return Crashed(f"agent of run {driver.run_id!r} is gone")
    await _catch_up(driver)
    return await work.ask_model(agent, permit, driver.run_id, driver.messages)


async def _catch_up(driver: RunDriver) -> None:
    """Bring the bytes of new transcript entries into memory; the old ones are there already."""
    state, payloads = driver.state, driver.tenure.world.payloads
    if state is None:
        return
    for entry in state.transcript[len(driver.messages) :]:
        data = await payloads.read(entry.payload)
        driver.messages.append(
            Message(entry.kind, data, entry.tool_call_id, entry.tool, entry.outcome, entry.message_format)
        )


async def _tool_effect(driver: RunDriver, permit: work.Permit, request: ToolCallRequested) -> EffectOutcome:
    agent, state = driver.agent, driver.state
    call = None if state is None else state.call_at(request.step)
    if agent is None or state is None or call is None:
        return Crashed(f"step {request.step} of run {driver.run_id!r} is gone")
    payloads = driver.tenure.world.payloads
    arguments = await payloads.read(request.arguments)
    timeout_s = request.timeout_ms / 1000
    prepared = await work.invocation(payloads, state, call, request.step, request.attempt, timeout_s, arguments)
    return await work.execute(agent, permit, request, prepared)


async def _lookup_effect(driver: RunDriver, call: Call) -> Sealed | NotThere | Unknown:
    agent, state, payloads = driver.agent, driver.state, driver.tenure.world.payloads
    if agent is None or state is None or call.arguments is None:
        return Unknown(f"agent of run {driver.run_id!r} is gone")
    arguments = await payloads.read(call.arguments)
    timeout_s = call.timeout_ms / 1000
    prepared = await work.invocation(payloads, state, call, call.step, call.attempt, timeout_s, arguments)
    return await work.look_up(agent, driver.tenure, prepared)
