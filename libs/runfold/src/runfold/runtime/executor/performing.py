"""From a decision to events in the batch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from typing import Any

from runfold.core import decisions, drafts
from runfold.core.events import (
    Outcome,
    RunCancelled,
    RunCompleted,
    RunFailed,
    Source,
    StatePatched,
    WaitReason,
    Why,
)
from runfold.core.payload import Inline, Payload, canonical_json, inline_json
from runfold.core.policy import MAX_RETRY_AFTER_S
from runfold.core.state import Call, State
from runfold.core.text import clip
from runfold.ports.agents import GateAsked, Invalid, RunningAgent, Valid
from runfold.runtime.executor import work
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.commit import commit
from runfold.runtime.executor.run import Run, look_again
from runfold.runtime.payloads import Payloads

_DENIED = "The call was denied by a person."


async def perform(run: Run, batch: Batch, decision: decisions.Decision) -> bool:  # noqa: C901 - one arm per decision
    """Add the events of one decision; False when nothing more is decidable for now."""
    state, agent = batch.known, run.agent
    stamp = batch.stamp()
    match decision:
        case decisions.Cancel(open_keys):
            reason = clip(state.cancel_reason or "")
            batch.add(RunCancelled(**drafts.envelope(state, stamp), reason=reason, open_keys=open_keys))
        case decisions.CloseWait(wait):
            batch.add(drafts.resumed(state, stamp, wait))
        case decisions.Stop(error):
            batch.add(drafts.interruption(state, stamp, WaitReason.ERROR, {"error": error}))
        case decisions.Fail(error):
            batch.add(RunFailed(**drafts.envelope(state, stamp), error=clip(error)))
        case decisions.Deny(call):
            _deny(batch, state, call)
        case decisions.Patch():
            await _patch(run, batch, state)
        case _ if agent is None:
            return False
        case decisions.CallModel(why, not_before):
            return _call_model(run, batch, state, agent, why, not_before)
        case decisions.OpenCalls(calls):
            return await _open_calls(run, batch, agent, calls)
        case decisions.RequestCall(call, why):
            _request(batch, agent, call, why, call.arguments)
        case decisions.Finish():
            await _finish(run, batch, agent)
        case _:
            return False
    return True


def _call_model(run: Run, batch: Batch, state: State, agent: RunningAgent, why: Why, not_before: int) -> bool:
    early = _too_early(run, state, not_before)
    if early > 0:
        run.after(early, look_again)
        return False
    batch.add(drafts.model_call(state, batch.stamp(), why, Inline(agent.params)))
    return True


def _too_early(run: Run, state: State, not_before: int) -> float:
    """For how many seconds more the model is not asked.

    Another owner may have set that moment, by another clock: nobody waits longer than the longest pause there is.
    """
    clock, call = run.world.clock, state.model_call
    early = (not_before - clock.now_ms()) / 1000
    if call is None or early <= 0:
        return early
    now = clock.elapsed()
    since = run.paused_since.setdefault((call.step, call.attempt), now)
    return min(early, since + MAX_RETRY_AFTER_S - now)


def _deny(batch: Batch, state: State, call: Call) -> None:
    _, by = state.used_approvals.get(call.approval_id or "", ("rejected", ""))
    text = inline_json(f"{_DENIED} They said: {call.remark}" if call.remark else _DENIED)
    batch.add(
        drafts.tool_returned(state, batch.stamp(), call, Source.DENIED, Outcome.DENIED, text, resolved_by=by or None)
    )


async def _patch(run: Run, batch: Batch, state: State) -> None:
    changes: list[tuple[int, str, bytes]] = []
    for step, patch in state.due_patches:
        values = json.loads(await run.world.payloads.read(patch))
        changes.extend((step, key, canonical_json(values[key])) for key in sorted(values))
    due = changes[state.applied_patches :]
    for index, (step, key, value) in enumerate(due):
        sealed = await run.world.payloads.seal(value)
        remaining = len(due) - index - 1
        fields = drafts.envelope(state, batch.stamp())
        state = batch.add(StatePatched(**fields, step=step, key=key, value=sealed, remaining=remaining))


async def _finish(run: Run, batch: Batch, agent: RunningAgent) -> None:
    state = batch.known
    last = state.transcript[-1]
    output = agent.output(await run.world.payloads.read(last.payload), last.message_format)
    batch.add(RunCompleted(**drafts.envelope(state, batch.stamp()), output=await run.world.payloads.seal(output)))


# --- opening a turn ---------------------------------------------------------------------------------------------


async def _open_calls(run: Run, batch: Batch, agent: RunningAgent, asked: tuple[Call, ...]) -> bool:
    """Validate, ask for approvals, then add requests and gates as one unbroken batch, in call order."""
    state = batch.known
    sequential = decisions.is_sequential(state.turn, agent.sequential)
    calls = decisions.openable(asked, sequential=sequential)
    payloads = run.world.payloads
    checked = [agent.validate(c.asked.tool, await payloads.read(c.asked.arguments)) for c in calls]
    gated = [_has_gate(agent, call) and isinstance(valid, Valid) for call, valid in zip(calls, checked, strict=True)]
    gates: list[GateAsked | None] = [None] * len(calls)
    if any(gated):
        # What brought us here becomes durable before the author's code is asked, which may take its time.
        await commit(run, batch)
        questions = (
            _ask_gate(payloads, agent, state, call, valid) if has_gate and isinstance(valid, Valid) else _no_gate()
            for call, valid, has_gate in zip(calls, checked, gated, strict=True)
        )
        gates = await _all(questions)
    for call, valid, gate in zip(calls, checked, gates, strict=True):
        await _open(payloads, batch, agent, call, valid, gate, sequential=sequential)
    # Behind requests and gates alone nothing is decidable; a call that has its answer already may have made room.
    return any(isinstance(valid, Invalid) for valid in checked)


async def _all(questions: Iterable[Coroutine[Any, Any, GateAsked | None]]) -> list[GateAsked | None]:
    """Ask all at once; when one raises, the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _has_gate(agent: RunningAgent, call: Call) -> bool:
    spec = agent.tool(call.asked.tool)
    return spec is not None and spec.has_gate


async def _no_gate() -> None:
    return None


async def _ask_gate(
    payloads: Payloads, agent: RunningAgent, state: State, call: Call, valid: Valid
) -> GateAsked | None:
    spec = agent.tool(call.asked.tool)
    timeout_s = 60.0 if spec is None else spec.timeout_ms / 1000
    question = await work.invocation(payloads, state, call, 0, 0, timeout_s, valid.arguments)
    async with asyncio.timeout(timeout_s):
        return await agent.gate(question)


async def _open(
    payloads: Payloads,
    batch: Batch,
    agent: RunningAgent,
    call: Call,
    valid: Valid | Invalid,
    gate: GateAsked | None,
    *,
    sequential: bool,
) -> None:
    state = batch.known
    if isinstance(valid, Invalid):
        error = await payloads.seal(valid.error)
        batch.add(drafts.tool_returned(state, batch.stamp(), call, Source.INVALID, Outcome.RETRIED, error))
        return
    arguments = await payloads.seal(valid.arguments)
    if gate is not None:
        batch.add(
            drafts.approval_gate(
                state, batch.stamp(), call, arguments, gate.message, dict(gate.detail), sequential=sequential
            )
        )
    else:
        _request(batch, agent, call, Why.FIRST, arguments, sequential=sequential)


def _request(
    batch: Batch, agent: RunningAgent, call: Call, why: Why, arguments: Payload | None, *, sequential: bool = False
) -> None:
    """Request a call; a tool that the running code has lost cannot be executed.

    Recovery class, time-out and what is said of the downstream's memory are frozen by the first request.
    """
    spec = agent.tool(call.asked.tool)
    if spec is None or arguments is None:
        raise ToolGone(f"tool {call.asked.tool!r} is not in agent {agent.name!r} any more")
    recovery, timeout_ms = call.recovery or spec.recovery, call.timeout_ms or spec.timeout_ms
    stamp = batch.stamp()
    batch.add(
        drafts.tool_call(
            batch.known,
            stamp,
            call,
            why,
            arguments,
            recovery,
            timeout_ms,
            sequential=sequential,
            key_ttl_ms=spec.key_ttl_ms,
            settle_ms=spec.settle_ms,
            dedupe=spec.dedupe,
        )
    )


class ToolGone(Exception):
    """The running code has no such tool; the run waits with an error that names it."""
