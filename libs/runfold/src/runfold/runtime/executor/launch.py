"""From an acknowledged request to an effect in flight."""

from __future__ import annotations

from functools import partial

from runfold.core.events import ToolCallRequested, Why
from runfold.core.state import Call
from runfold.ports.agents import Invocation, Message, Unknown
from runfold.ports.blobs import BlobMissing
from runfold.runtime.executor import work
from runfold.runtime.executor.batch import Request
from runfold.runtime.executor.effects import Crashed, EffectKey, EffectOutcome, Unprepared, Work
from runfold.runtime.executor.run import Run


def start(run: Run, request: Request, produced_at: float) -> None:
    """Perform a request of the batch that was just acknowledged; its effect reports to the run."""
    key = EffectKey(request.run_id, request.step, request.attempt)
    run.known_since.setdefault(request.step, produced_at)
    permit = work.Permit(run.tenure, produced_at)
    effect: Work
    if isinstance(request, ToolCallRequested):
        effect = partial(_tool_effect, run, permit, request)
    else:
        effect = partial(_model_effect, run, permit)
    run.world.effects.start(key, run.tenure.place, effect, run.hear)


def start_lookup(run: Run, call: Call) -> None:
    """Ask the author's lookup, or the effects table, about a call whose outcome this owner does not know."""
    _start_question(run, call, partial(_lookup_effect, run, call))


def start_closing(run: Run, call: Call, error: str) -> None:
    """Let the effects table refuse a call from now on; what it answers is an outcome like a lookup's."""
    _start_question(run, call, partial(_closing_effect, run, call, error))


def _start_question(run: Run, call: Call, effect: Work) -> None:
    key = EffectKey(run.run_id, call.step, call.attempt, lookup=True)
    run.world.effects.start(key, run.tenure.place, effect, run.hear)


async def _model_effect(run: Run, permit: work.Permit) -> EffectOutcome:
    agent, state = run.agent, run.state
    if agent is None or state is None:
        return Crashed(f"agent of run {run.run_id!r} is gone")
    try:
        await _catch_up(run)
    except BlobMissing as error:
        return _unprepared(error)
    return await work.ask_model(agent, permit, run.run_id, run.messages)


async def _catch_up(run: Run) -> None:
    """Bring the bytes of new transcript entries into memory; the old ones are there already."""
    state, payloads = run.state, run.world.payloads
    if state is None:
        return
    for entry in state.transcript[len(run.messages) :]:
        data = await payloads.read(entry.payload)
        run.messages.append(
            Message(entry.kind, data, entry.tool_call_id, entry.tool, entry.outcome, entry.message_format)
        )


async def _tool_effect(run: Run, permit: work.Permit, request: ToolCallRequested) -> EffectOutcome:
    agent, state = run.agent, run.state
    call = None if state is None else state.call_at(request.step)
    if agent is None or state is None or call is None:
        return Crashed(f"step {request.step} of run {run.run_id!r} is gone")
    payloads, absent_upto = run.world.payloads, run.absent_upto.get(request.step, 0)
    if request.why is Why.ABSENT:
        absent_upto = request.attempt - 1
    timeout_s = request.timeout_ms / 1000
    try:
        arguments = await payloads.read(request.arguments)
        prepared = await work.invocation(
            payloads,
            state,
            call,
            request.step,
            request.attempt,
            timeout_s,
            arguments,
            permit=permit,
            absent_upto=absent_upto,
            grace_s=run.world.settings.grace_s,
        )
    except BlobMissing as error:
        return _unprepared(error)
    return await work.execute(agent, run.world, prepared)


async def _lookup_effect(run: Run, call: Call) -> work.Answer:
    agent, prepared = run.agent, await _question(run, call)
    if agent is None or prepared is None:
        return _agent_gone(run)
    return await work.look_up(agent, run.tenure, prepared)


async def _closing_effect(run: Run, call: Call, error: str) -> work.Answer:
    agent, prepared = run.agent, await _question(run, call)
    if agent is None or prepared is None:
        return _agent_gone(run)
    return await work.close(agent, run.tenure, prepared, error)


async def _question(run: Run, call: Call) -> Invocation | None:
    """What is told about a call that is asked about."""
    state, payloads = run.state, run.world.payloads
    if state is None or call.arguments is None:
        return None
    arguments = await payloads.read(call.arguments)
    timeout_s = call.timeout_ms / 1000
    grace_s = run.world.settings.grace_s
    return await work.invocation(payloads, state, call, call.step, call.attempt, timeout_s, arguments, grace_s=grace_s)


def _unprepared(error: BlobMissing) -> Unprepared:
    return Unprepared(f"{type(error).__name__}: {error}")


def _agent_gone(run: Run) -> Unknown:
    return Unknown(f"agent of run {run.run_id!r} is gone")
