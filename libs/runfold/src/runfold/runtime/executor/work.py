"""The effects themselves: ask the model, execute a tool, look a call up, close it.

Each seals its payloads before it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runfold.core.events import AskedCall, Outcome
from runfold.core.payload import canonical_json
from runfold.core.policy import GRACE_S
from runfold.core.state import Call, State
from runfold.core.text import clip
from runfold.ports.agents import (
    Begun,
    Invocation,
    Message,
    ModelAnswer,
    NotStarted,
    NotThere,
    Returned,
    RunningAgent,
    Unknown,
    may_always_start,
)
from runfold.runtime.executor.effects import Answered, EffectOutcome, Sealed
from runfold.runtime.executor.tenure import Tenure, World
from runfold.runtime.payloads import Payloads


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to perform one request: its acknowledgement, and since when its time counts.

    Attributes:
        produced_at: When the request was produced, seconds of ``Clock.elapsed``.
    """

    tenure: Tenure
    produced_at: float

    def age(self) -> float:
        """Seconds since the produce, suspended time included."""
        return self.tenure.world.clock.elapsed() - self.produced_at

    def is_good(self) -> bool:
        """Whether the acknowledgement still proves that the partition is ours."""
        return self.age() <= self.tenure.world.settings.freshness_s and not self.tenure.writer.over.done()


async def invocation(  # noqa: PLR0913 - what is told of a call
    payloads: Payloads,
    state: State,
    call: Call,
    step: int,
    attempt: int,
    timeout_s: float,
    arguments: bytes,
    *,
    permit: Permit | None = None,
    absent_upto: int = 0,
    grace_s: float = GRACE_S,
) -> Invocation:
    """Everything that the author's function is told of a call.

    ``permit``: of an execution, whose time counts from the produce of its request.
    """
    values = {key: await payloads.read(value) for key, value in state.values.items()}
    return Invocation(
        run_id=state.run_id,
        agent=state.agent,
        step=step,
        attempt=attempt,
        tool=call.asked.tool,
        tool_call_id=call.asked.tool_call_id,
        idempotency_key=state.key(step),
        arguments=arguments,
        values=values,
        timeout_s=timeout_s if permit is None else timeout_s - permit.age(),
        may_start=may_always_start if permit is None else permit.is_good,
        recovery=call.recovery,
        dedupe=call.dedupe,
        settle_ms=call.settle_ms,
        absent_upto=absent_upto,
        grace_s=grace_s,
    )


async def ask_model(agent: RunningAgent, permit: Permit, run_id: str, messages: Sequence[Message]) -> EffectOutcome:
    """One model call."""
    world = permit.tenure.world
    if not permit.is_good():
        return NotStarted()
    began = world.clock.elapsed()
    answer = await agent.ask_model(run_id, messages, world.settings.model_timeout_s)
    world.metrics.step_performed("model", world.clock.elapsed() - began)
    return await _seal_answer(world.payloads, answer) if isinstance(answer, ModelAnswer) else answer


async def execute(agent: RunningAgent, world: World, prepared: Invocation) -> EffectOutcome:
    """One execution of a tool."""
    if prepared.timeout_s <= 0:
        return NotStarted()
    began = world.clock.elapsed()
    outcome = await agent.execute(prepared)
    world.metrics.step_performed("tool", world.clock.elapsed() - began)
    return await seal_returned(world.payloads, outcome) if isinstance(outcome, Returned) else outcome


Answer = Sealed | NotThere | Begun | Unknown


async def look_up(agent: RunningAgent, tenure: Tenure, prepared: Invocation) -> Answer:
    """Ask the author's lookup, or the effects table."""
    began = tenure.world.clock.elapsed()
    outcome = await agent.look_up(prepared)
    tenure.world.metrics.step_performed("lookup", tenure.world.clock.elapsed() - began)
    return await seal_returned(tenure.world.payloads, outcome) if isinstance(outcome, Returned) else outcome


async def close(agent: RunningAgent, tenure: Tenure, prepared: Invocation, error: str) -> Answer:
    """Let the effects table refuse the call from now on, and give what stands there: this error, or an outcome."""
    returned = Returned(Outcome.FAILED, canonical_json(clip(error)))
    outcome = await agent.close(prepared, returned)
    return await seal_returned(tenure.world.payloads, outcome) if isinstance(outcome, Returned) else outcome


async def seal_returned(payloads: Payloads, returned: Returned) -> Sealed:
    """Bring a tool's answer into payloads."""
    parts = [data for data in (returned.result, returned.for_model, returned.patch) if data is not None]
    sealed = iter(await payloads.seal_all(parts))
    result = next(sealed)
    for_model = None if returned.for_model is None else next(sealed)
    patch = None if returned.patch is None else next(sealed)
    return Sealed(returned, result, for_model, patch)


async def _seal_answer(payloads: Payloads, answer: ModelAnswer) -> Answered:
    arguments = [arguments for _, _, arguments in answer.tool_calls]
    message, *sealed = await payloads.seal_all([answer.message, *arguments])
    calls = tuple(
        AskedCall(call_id, tool, payload) for (call_id, tool, _), payload in zip(answer.tool_calls, sealed, strict=True)
    )
    return Answered(
        message=message,
        message_format=answer.message_format,
        tool_calls=calls,
        finish_reason=answer.finish_reason,
        usage=tuple(sorted(answer.usage.items())),
        cost_nano_usd=answer.cost_nano_usd,
        model=answer.model,
    )
