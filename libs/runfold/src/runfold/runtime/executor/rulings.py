"""What becomes of one input of one run: an event, or a record that says why not.

Exactly one record is left in the log for each input: the first event added here carries its cause, or ``Settle``
is returned and the caller appends that. What follows from the event is decided like everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from runfold.codec.input_types import (
    ApprovalInput,
    CancelInput,
    ResolveInput,
    ResumeInput,
    StartInput,
    UnsupportedInput,
    VerdictInput,
)
from runfold.core import drafts, versions
from runfold.core.events import (
    UNKNOWN_VERSION,
    CancelRequested,
    Cause,
    Outcome,
    RunStarted,
    Settlement,
    Source,
    Version,
    WaitReason,
    Why,
)
from runfold.core.payload import Inline, inline_json, same
from runfold.core.policy import MAX_LOST_ATTEMPTS, lost_too_often
from runfold.core.state import Call, Phase, State, Status
from runfold.ports.agents import Returned
from runfold.runtime.executor import again, recovery, version_gate
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import EffectKey
from runfold.runtime.executor.mailbox import Arrived
from runfold.runtime.executor.run import Run
from runfold.runtime.executor.work import seal_returned


@dataclass(frozen=True, slots=True)
class Settle:
    """It causes no event. ``why``: for ``dead``, the reason and what is wrong and how to mend it."""

    outcome: Settlement
    why: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """It may not be acted on yet: look at it again in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Caused:
    """Its event is in the batch."""


Ruling = Settle | Hold | Caused
ExistingRunInput = ApprovalInput | CancelInput | ResumeInput | ResolveInput | VerdictInput
CAUSED = Caused()
# Less than this can vanish in a clock's rounding, and an input would be looked at again in the same instant.
_SHORTEST_HOLD_S = 0.001
DUPLICATE = Settle(Settlement.DUPLICATE)
STALE = Settle(Settlement.STALE)


def dead(reason: str, detail: str) -> Settle:
    """Refuse an input."""
    return Settle(Settlement.DEAD, (reason, detail))


async def rule(run: Run, batch: Batch, arrived: Arrived) -> Ruling:
    """Judge an input against everything that the log says of its run; nothing of the run is in flight."""
    state, cause = batch.state, arrived.cause
    if state is not None and cause.id is not None and cause.id in state.seen_ids:
        return DUPLICATE
    match arrived.input:
        case UnsupportedInput(type=name):
            return dead("unsupported_type", f"type {name!r} is not served by this version of Runfold")
        case StartInput() as start:
            return await _start(run, batch, state, start, cause)
        case other if state is None:
            return dead("unknown_run", f"run {other.run_id!r} does not exist: check run_id, or start it first")
        case other:
            return await _rule_existing(run, batch, state, other, cause)


async def _rule_existing(run: Run, batch: Batch, state: State, given: ExistingRunInput, cause: Cause) -> Ruling:
    match given:
        case ApprovalInput() as approval:
            return _approval(batch, state, approval, cause)
        case CancelInput() as cancel:
            return _cancel(run, batch, state, cancel, cause)
        case ResumeInput() as resume:
            return _resume(run, batch, state, resume, cause)
        case ResolveInput() as resolve:
            return await _resolve(run, batch, state, resolve, cause)
        case VerdictInput() as verdict:
            return await _verdict(run, batch, state, verdict, cause)


async def _start(run: Run, batch: Batch, state: State | None, start: StartInput, cause: Cause) -> Ruling:
    if state is not None:
        if state.agent == start.agent and same(state.input, Inline(start.input)):
            return DUPLICATE
        return dead("run_exists", f"run {start.run_id!r} exists with another agent or input: an id is never used again")
    payloads = run.world.payloads
    agent = run.world.agents.get(start.agent)
    version: Version = UNKNOWN_VERSION
    first_message: bytes | None = None
    if agent is not None:
        try:
            first_message = agent.first_message(start.input)
            version = agent.version
        except Exception:  # noqa: BLE001 - the author's code: the version gate meets it again and interrupts the run
            version, first_message = UNKNOWN_VERSION, None
    parts = [start.input] if first_message is None else [start.input, first_message]
    sealed = await payloads.seal_all(parts)
    stamp = batch.stamp(cause)
    batch.add(
        RunStarted(
            run_id=start.run_id,
            seq=0,
            epoch=stamp.epoch,
            at=stamp.at,
            cause=cause,
            agent=start.agent,
            input=sealed[0],
            version=version,
            first_message=None if first_message is None else sealed[1],
        )
    )
    run.admitted = first_message is not None
    return CAUSED


def _approval(batch: Batch, state: State, approval: ApprovalInput, cause: Cause) -> Ruling:
    wait = state.waits.get(approval.approval_id)
    if wait is None or wait.reason is not WaitReason.AWAITING_APPROVAL:
        if state.used_approvals.get(approval.approval_id) == (approval.decision, approval.approved_by):
            return DUPLICATE
        return dead(
            "not_open", f"approval {approval.approval_id!r} is not open (used, or never issued): see `runfold waits`"
        )
    if approval.arguments_digest not in (None, wait.arguments_digest):
        return dead("digest_mismatch", f"approval {approval.approval_id!r} is for arguments {wait.arguments_digest}")
    batch.add(
        drafts.resumed(
            state,
            batch.stamp(cause),
            wait,
            by=approval.approved_by,
            decision=approval.decision,
            comment=approval.comment,
        )
    )
    return CAUSED


def _cancel(run: Run, batch: Batch, state: State, cancel: CancelInput, cause: Cause) -> Ruling:
    if state.ended is Status.CANCELLED or (state.ended is None and state.cancel_reason is not None):
        return DUPLICATE
    if state.ended is not None:
        return dead("run_ended", f"run {state.run_id!r} has {state.ended} already")
    fields = drafts.envelope(state, batch.stamp(cause))
    batch.add(CancelRequested(**fields, reason=cancel.reason, requested_by=cancel.requested_by))
    if batch.known.operational_wait() is not None:
        _take_up(run, batch)
    return CAUSED


def _resume(run: Run, batch: Batch, state: State, resume: ResumeInput, cause: Cause) -> Ruling:
    wait = state.operational_wait()
    if wait is None:
        return dead("not_open", _not_held(state))
    agent = run.agent
    if wait.reason is WaitReason.UNKNOWN_AGENT and agent is None:
        return dead("unknown_agent", f"this executor does not know agent {state.agent!r}: deploy one that does")
    if wait.reason is WaitReason.VERSION_MISMATCH and agent is not None:
        decided = version_gate.compare(agent, state, accept=resume.accept_version)
        if isinstance(decided, versions.Refused):
            parts = ", ".join(decided.parts)
            return dead("version_mismatch", f"still another version ({parts}): deploy the right one, or accept_version")
    run.admitted = False
    by, accept = resume.requested_by, resume.accept_version
    batch.add(drafts.resumed(state, batch.stamp(cause), wait, by=by, accept_version=accept))
    _take_up(run, batch)
    return CAUSED


def _take_up(run: Run, batch: Batch) -> None:
    """Deal with the requests of a run that was held, and with the outcomes that nothing was done about meanwhile."""
    run.dangling = batch.known.has_open_request
    recovery.attach_survivors(run)


def _not_held(state: State) -> str:
    """Say why there is nothing to resume, and which command is meant."""
    run = state.run_id
    doubts = [str(wait.step) for wait in state.waits.values() if wait.reason is WaitReason.INDETERMINATE]
    if doubts:
        return (
            f"run {run!r} waits until somebody says what became of step {', '.join(doubts)}: "
            f"use `runfold resolve {run} {doubts[0]}` with --result, --absent or --error"
        )
    if state.waits:
        return f"run {run!r} waits for an approval: use `runfold approve` or `reject`, see `runfold waits {run}`"
    return f"run {run!r} is not held by an error, a version or an unknown agent: see `runfold show {run}`"


# --- what became of a call --------------------------------------------------------------------------------------


async def _resolve(run: Run, batch: Batch, state: State, resolve: ResolveInput, cause: Cause) -> Ruling:
    call = state.call_at(resolve.step)
    # A cancelled run keeps its turn as it was: its calls in doubt are nobody's any more.
    if state.ended is not None or call is None or call.phase is not Phase.IN_DOUBT:
        return dead(
            "not_open", f"step {resolve.step} of run {state.run_id!r} is not indeterminate: see `runfold waits`"
        )
    if resolve.attempt not in (None, call.attempt):
        return dead("not_open", f"step {resolve.step} is in doubt about attempt {call.attempt}, not {resolve.attempt}")
    if resolve.outcome == "absent":
        return _resolve_absent(run, batch, state, call, resolve, cause)
    payloads = run.world.payloads
    if resolve.outcome == "result":
        outcome, result = Outcome.SUCCESS, await payloads.seal(resolve.result or b"null")
    else:
        outcome, result = Outcome.FAILED, inline_json(resolve.error)
    batch.add(
        drafts.tool_returned(
            state, batch.stamp(cause), call, Source.OPERATOR, outcome, result, resolved_by=resolve.resolved_by
        )
    )
    return CAUSED


def _resolve_absent(run: Run, batch: Batch, state: State, call: Call, resolve: ResolveInput, cause: Cause) -> Ruling:
    """Believe it only when no earlier owner can perform the request any more."""
    tenure = run.tenure
    left = call.timeout_ms / 1000 + tenure.world.settings.grace_s - tenure.since_claim()
    if call.epoch != tenure.epoch and left > 0:
        return Hold(max(left, _SHORTEST_HOLD_S))
    wait = state.waits[state.key(call.step)]
    batch.add(drafts.resumed(state, batch.stamp(cause), wait, by=resolve.resolved_by, decision="absent"))
    run.absent_upto[call.step] = call.attempt
    run.known_since.pop(call.step, None)
    return CAUSED


async def _verdict(run: Run, batch: Batch, state: State, verdict: VerdictInput, cause: Cause) -> Ruling:
    """A verdict names its attempt; one that is late changes nothing."""
    call = state.call_at(verdict.step)
    if call is None or not state.is_open(verdict.step, verdict.attempt):
        return STALE
    if verdict.outcome == "found":
        await _found(run, batch, state, call, verdict, cause)
        return CAUSED
    if call.phase is Phase.IN_DOUBT:
        return STALE
    key = EffectKey(state.run_id, call.step, call.attempt)
    if run.world.effects.alive(key):
        return _hung(run, batch, state, call, verdict, cause)
    if verdict.outcome == "indeterminate":
        batch.add(drafts.doubt(state, batch.stamp(cause), call, verdict.error or "nobody knows"))
        return CAUSED
    return _absent(run, batch, state, call, cause)


def _hung(run: Run, batch: Batch, state: State, call: Call, verdict: VerdictInput, cause: Cause) -> Ruling:
    """Somebody found nothing of a call that is in this process, long after its time.

    One that has ended is this owner's own to look up. One that ignores its time-out may act at any moment: nothing is
    executed beside it, but the run does not stand still for it either. The first report may have met a process that was
    suspended and is only now waking up; so the second one counts.
    """
    key = EffectKey(state.run_id, call.step, call.attempt)
    if not run.world.effects.performing(key) or key not in run.hung:
        run.hung.add(key)
        return STALE
    said = verdict.error or "its lookup finds nothing"
    error = f"{said}; but the process that performs it is alive and still in the call, which ignores its time-out"
    batch.add(drafts.doubt(state, batch.stamp(cause), call, error))
    return CAUSED


async def _found(run: Run, batch: Batch, state: State, call: Call, verdict: VerdictInput, cause: Cause) -> None:
    returned = Returned(verdict.result_outcome, verdict.result or b"null", verdict.for_model, verdict.patch)
    sealed = await seal_returned(run.world.payloads, returned)
    batch.add(
        drafts.tool_returned(
            state,
            batch.stamp(cause),
            call,
            Source.RECONCILED,
            returned.outcome,
            sealed.result,
            for_model=sealed.for_model,
            patch=sealed.patch,
        )
    )


def _absent(run: Run, batch: Batch, state: State, call: Call, cause: Cause) -> Ruling:
    """It never happened: execute it now, unless this code may not drive the run, or it was lost too often."""
    stamp = batch.stamp(cause)
    if state.cancel_reason is not None:
        text = inline_json("the run was cancelled; a lookup says that the call did not happen")
        batch.add(drafts.tool_returned(state, stamp, call, Source.RECONCILED, Outcome.FAILED, text))
    elif not run.admitted or state.operational_wait() is not None or call.arguments is None or call.recovery is None:
        return STALE
    elif again.is_forgotten(run, call):
        said = again.forgotten(run, call, "that its lookup finds nothing proves nothing")
        batch.add(drafts.doubt(state, stamp, call, said))
    elif lost_too_often(call):
        detail = {"error": f"step {call.step} was lost {MAX_LOST_ATTEMPTS} times before it happened", "step": call.step}
        batch.add(drafts.interruption(state, stamp, WaitReason.ERROR, detail))
    elif not again.is_its_turn(run, call, call.lost):
        return Hold(again.SUSPECT_PAUSE_S * (1 + run.world.chance.jitter()))
    else:
        again.request(run, batch, state, call, Why.ABSENT, cause)
    return CAUSED
