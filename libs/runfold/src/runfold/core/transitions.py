"""Every legal transition of a run, in one file.

``fold(state, event)`` takes the state before an event and gives the state after it. It first proves that the event
is legal, then changes the state: an illegal one raises ``IllegalTransition`` and changes nothing. The same
function serves the executor, the compactor, the reconciler, ``runfold state --at`` and every test.

The life of a run::

    run_started
      { model_call_requested (model_call_failed model_call_requested)* model_responded
        { tool_call_requested+ tool_returned | interrupted resumed ... }     the turn, calls side by side
        state_patched* }*
    run_completed | run_failed | run_cancelled

``interrupted`` / ``resumed``, ``version_changed`` and ``cancel_requested`` may stand between any two of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runfold.core.errors import IllegalTransition
from runfold.core.events import (
    CancelRequested,
    Event,
    Interrupted,
    ModelCallFailed,
    ModelCallRequested,
    ModelResponded,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunStarted,
    StatePatched,
    ToolCallRequested,
    ToolReturned,
    VersionChanged,
    WaitReason,
    Why,
)
from runfold.core.state import Call, Entry, EntryKind, ModelCall, Phase, State, Status, Wait

# From which phases a call may be requested, by the reason for the attempt.
_REQUESTABLE = {
    Why.FIRST: {Phase.ASKED, Phase.APPROVED},
    Why.RETRY: {Phase.REQUESTED},
    Why.TAKEOVER: {Phase.REQUESTED},
    Why.STALE: {Phase.REQUESTED},
    Why.ABSENT: {Phase.REQUESTED, Phase.ABSENT},
}
# From which phases a call may return: denied ones without a request, invalid ones before anything.
_RETURNABLE = {Phase.ASKED, Phase.REJECTED, Phase.REQUESTED, Phase.IN_DOUBT, Phase.ABSENT, Phase.APPROVED}


def fold(state: State | None, event: Event) -> State:
    """Apply one valid event.

    Args:
        state: The run before it; None before ``run_started``. Changed in place.
        event: The run's next event.

    Returns:
        The state after it: the same object, unless there was none.

    Raises:
        IllegalTransition: If the event does not fit; the state is as it was.
    """
    if isinstance(event, RunStarted):
        return _start(state, event)
    if state is None:
        raise IllegalTransition(f"{_name(event)} of run {event.run_id!r}, which has not started")
    _need(event.run_id == state.run_id, event, f"belongs to run {event.run_id!r}, not {state.run_id!r}")
    _need(event.seq == state.seq + 1, event, f"has seq {event.seq}, the run is at {state.seq}")
    _need(state.ended is None, event, f"comes after the run has ended ({state.ended})")
    _FOLDS[type(event)](state, event)
    state.seq, state.epoch, state.at = event.seq, event.epoch, event.at
    _remember_cause(state, event)
    return state


def _start(state: State | None, event: RunStarted) -> State:
    if state is not None:
        raise IllegalTransition(f"run_started of run {event.run_id!r}, which exists already")
    _need(event.seq == 0, event, f"has seq {event.seq}, not 0")
    started = State(
        run_id=event.run_id,
        agent=event.agent,
        input=event.input,
        version=event.version,
        started_at=event.at,
        epoch=event.epoch,
        at=event.at,
    )
    if event.first_message is not None:
        _append(started, Entry(EntryKind.USER, event.seq, event.first_message))
    _remember_cause(started, event)
    return started


# --- model calls ------------------------------------------------------------------------------------------------


def _model_call_requested(state: State, event: ModelCallRequested) -> None:
    call = state.model_call
    _need(not state.turn and not state.due_patches, event, "comes while a turn is open")
    _need(event.messages_hash == state.messages_hash.hex(), event, "was made from another transcript")
    _need(event.message_count == len(state.transcript), event, "counts another number of messages")
    _need(state.has_first_message, event, "comes before the first message")
    if call is None:
        _need(event.step == state.step + 1, event, f"takes step {event.step}, the next is {state.step + 1}")
        _need(event.attempt == 1 and event.why is Why.FIRST, event, "is not a first attempt")
        state.step = event.step
        state.model_call = ModelCall(event.step, event.attempt, event.epoch)
        return
    _need(event.step == call.step and event.attempt == call.attempt + 1, event, "is not the call's next attempt")
    _need(call.is_open == (event.why in (Why.TAKEOVER, Why.STALE)), event, f"cannot be for {event.why} here")
    state.unaccounted_calls += event.why is Why.TAKEOVER
    call.lost += event.why is Why.TAKEOVER
    call.attempt, call.epoch, call.is_open, call.retry_at, call.error = event.attempt, event.epoch, True, None, None


def _model_responded(state: State, event: ModelResponded) -> None:
    _need_open_model_call(state, event)
    ids = [asked.tool_call_id for asked in event.tool_calls]
    _need(len(set(ids)) == len(ids), event, "holds two tool calls of one id")
    state.model_call = None
    _append(state, Entry(EntryKind.RESPONSE, event.seq, event.message))
    state.turn = [Call(asked) for asked in event.tool_calls]
    state.used_tools.update(asked.tool for asked in event.tool_calls)
    for name, count in event.usage:
        state.usage[name] = state.usage.get(name, 0) + count
    state.unpriced_calls += event.cost_nano_usd is None
    state.cost_nano_usd += event.cost_nano_usd or 0


def _model_call_failed(state: State, event: ModelCallFailed) -> None:
    call = _need_open_model_call(state, event)
    call.is_open, call.retry_at, call.error = False, event.retry_at, event.error
    call.failures += 1


def _need_open_model_call(state: State, event: ModelResponded | ModelCallFailed) -> ModelCall:
    call = state.model_call
    if call is None or not call.is_open or (event.step, event.attempt) != (call.step, call.attempt):
        raise _illegal(event, f"answers step {event.step}, attempt {event.attempt}, which is not open")
    return call


# --- tool calls -------------------------------------------------------------------------------------------------


def _tool_call_requested(state: State, event: ToolCallRequested) -> None:
    call = _call_by_id(state, event, event.tool_call_id)
    _need(event.tool == call.asked.tool, event, f"names {event.tool!r}, the model asked for {call.asked.tool!r}")
    _need(call.phase in _REQUESTABLE[event.why], event, f"cannot be for {event.why} of a call that is {call.phase}")
    _need(event.attempt == call.attempt + 1, event, f"has attempt {event.attempt} after {call.attempt}")
    _need(event.approval_id == call.approval_id, event, f"names approval {event.approval_id}, not {call.approval_id}")
    _need(event.idempotency_key == state.key(event.step), event, "has another step's key")
    _take_step(state, event, call, event.step)
    call.phase, call.arguments, call.recovery = Phase.REQUESTED, event.arguments, event.recovery
    call.timeout_ms, call.attempt, call.epoch = event.timeout_ms, event.attempt, event.epoch
    call.count(event.why)


def _tool_returned(state: State, event: ToolReturned) -> None:
    call = _call_by_id(state, event, event.tool_call_id)
    _need(call.phase in _RETURNABLE, event, f"ends a call that is {call.phase}")
    _need(event.attempt == call.attempt, event, f"has attempt {event.attempt}, the call is at {call.attempt}")
    _take_step(state, event, call, event.step)
    seen = event.for_model if event.for_model is not None else event.result
    call.phase, call.patch = Phase.RETURNED, event.patch
    call.entry = Entry(EntryKind.TOOL, event.seq, seen, event.tool_call_id, call.asked.tool, event.outcome)
    _close_turn_if_complete(state)


def _take_step(state: State, event: ToolCallRequested | ToolReturned, call: Call, step: int) -> None:
    """A call that has no step takes the run's next; one that has keeps it. Checked last: it changes the state."""
    if call.step:
        _need(step == call.step, event, f"has step {step}, the call has {call.step}")
        return
    _need(step == state.step + 1, event, f"takes step {step}, the next is {state.step + 1}")
    call.step = state.step = step


def _close_turn_if_complete(state: State) -> None:
    if any(call.phase is not Phase.RETURNED for call in state.turn):
        return
    for call in state.turn:
        if call.entry is not None:
            _append(state, call.entry)
        if call.patch is not None:
            state.due_patches.append((call.step, call.patch))
    state.turn = []
    state.applied_patches = 0


def _state_patched(state: State, event: StatePatched) -> None:
    _need(bool(state.due_patches), event, "patches a state for which nothing is due")
    state.values[event.key] = event.value
    state.applied_patches += 1
    if event.remaining == 0:
        state.due_patches, state.applied_patches = [], 0


# --- waits ------------------------------------------------------------------------------------------------------


def _interrupted(state: State, event: Interrupted) -> None:
    _need(event.wait_id == state.key(event.step), event, f"has wait {event.wait_id}, not that of step {event.step}")
    _need(event.wait_id not in state.waits, event, f"opens {event.wait_id}, which is open")
    call = None if event.tool_call_id is None else _call_by_id(state, event, event.tool_call_id)
    if event.reason is WaitReason.INDETERMINATE:
        if call is None or call.phase is not Phase.REQUESTED or call.step != event.step:
            raise _illegal(event, "doubts a call that is not open")
        call.phase = Phase.IN_DOUBT
    else:
        _need(event.step == state.step + 1, event, f"takes step {event.step}, the next is {state.step + 1}")
        if event.reason is WaitReason.AWAITING_APPROVAL:
            if call is None or call.phase is not Phase.ASKED or event.arguments is None:
                raise _illegal(event, "guards no call that was asked for")
            call.phase, call.approval_id, call.arguments = Phase.GATED, event.wait_id, event.arguments
            call.step = event.step + 1
            state.step = call.step
        else:
            state.step = event.step
    state.waits[event.wait_id] = Wait(
        event.wait_id,
        event.step,
        event.seq,
        event.reason,
        event.detail,
        event.tool,
        event.tool_call_id,
        event.arguments,
        event.arguments_digest,
        event.expires_at,
    )


def _resumed(state: State, event: Resumed) -> None:
    wait = state.waits.get(event.wait_id)
    if wait is None or wait.reason is not event.reason:
        raise _illegal(event, f"closes {event.wait_id} ({event.reason}), which is not open")
    match event.reason:
        case WaitReason.AWAITING_APPROVAL:
            call = _call_by_id(state, event, wait.tool_call_id or "")
            _need(event.decision in ("approved", "rejected"), event, f"has decision {event.decision!r}")
            call.phase = Phase.APPROVED if event.decision == "approved" else Phase.REJECTED
            state.used_approvals[event.wait_id] = (event.decision or "", event.by or "")
        case WaitReason.INDETERMINATE:
            doubted = state.call_at(wait.step)
            in_doubt = doubted is not None and doubted.phase is Phase.IN_DOUBT
            _need(in_doubt == (event.decision == "absent"), event, "leaves a call in doubt, or doubts one that returned")
            if doubted is not None and in_doubt:
                doubted.phase = Phase.ABSENT
        case _:
            _forget_losses(state)
            state.accept_version = state.accept_version or event.accept_version
    del state.waits[event.wait_id]


def _forget_losses(state: State) -> None:
    """Somebody looked at the run and lets it go on: count failures and crashes from here."""
    if state.model_call is not None:
        state.model_call.failures = state.model_call.lost = 0
        if not state.model_call.is_open:
            state.model_call.retry_at = state.model_call.retry_at or 0
    for call in state.turn:
        call.lost = call.retries = call.absents = 0


# --- version, cancel, ends --------------------------------------------------------------------------------------


def _version_changed(state: State, event: VersionChanged) -> None:
    _need(event.old == state.version, event, "starts from another version")
    _need((event.first_message is None) == state.has_first_message, event, "must bring the first message exactly once")
    state.version, state.accept_version = event.new, False
    if event.first_message is not None:
        _append(state, Entry(EntryKind.USER, event.seq, event.first_message))


def _cancel_requested(state: State, event: CancelRequested) -> None:
    _need(state.cancel_reason is None, event, "comes twice")
    state.cancel_reason = event.reason


def _run_completed(state: State, event: RunCompleted) -> None:
    _need(_quiet(state) and state.cancel_reason is None, event, "comes while something is open")
    state.ended, state.output = Status.COMPLETED, event.output


def _run_failed(state: State, event: RunFailed) -> None:
    _need(_quiet(state), event, "comes while something is open")
    state.ended, state.error = Status.FAILED, event.error


def _run_cancelled(state: State, event: RunCancelled) -> None:
    _need(state.cancel_reason is not None, event, "was not asked for")
    _need(not state.open_calls(), event, "comes while a call is open")
    state.ended, state.open_keys, state.error = Status.CANCELLED, event.open_keys, event.reason
    state.waits.clear()


def _quiet(state: State) -> bool:
    return not state.turn and state.model_call is None and not state.waits and not state.due_patches


# --- helpers ----------------------------------------------------------------------------------------------------


def _append(state: State, entry: Entry) -> None:
    state.messages_hash = entry.chain(state.messages_hash)
    state.transcript.append(entry)


def _remember_cause(state: State, event: RunEvent) -> None:
    if event.cause is not None and event.cause.id is not None:
        state.seen_ids.add(event.cause.id)


def _call_by_id(state: State, event: Event, tool_call_id: str) -> Call:
    for call in state.turn:
        if call.asked.tool_call_id == tool_call_id:
            return call
    raise _illegal(event, f"names tool call {tool_call_id!r}, which is not of the open turn")


def _need(condition: bool, event: RunEvent, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not condition:
        raise _illegal(event, what)


def _illegal(event: RunEvent, what: str) -> IllegalTransition:
    return IllegalTransition(f"run {event.run_id!r}, seq {event.seq}: {_name(event)} {what}")


def _name(event: RunEvent) -> str:
    return type(event).__name__


_FOLDS: dict[type, Callable[[State, Any], None]] = {
    ModelCallRequested: _model_call_requested,
    ModelResponded: _model_responded,
    ModelCallFailed: _model_call_failed,
    ToolCallRequested: _tool_call_requested,
    ToolReturned: _tool_returned,
    StatePatched: _state_patched,
    Interrupted: _interrupted,
    Resumed: _resumed,
    VersionChanged: _version_changed,
    CancelRequested: _cancel_requested,
    RunCompleted: _run_completed,
    RunFailed: _run_failed,
    RunCancelled: _run_cancelled,
}
