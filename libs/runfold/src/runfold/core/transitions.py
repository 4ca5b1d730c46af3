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
    Source,
    StatePatched,
    ToolCallRequested,
    ToolReturned,
    VersionChanged,
    WaitReason,
    Why,
)
from runfold.core.state import (
    ASKED,
    FIRST,
    RETURNED,
    Call,
    Entry,
    EntryKind,
    ModelCall,
    Phase,
    State,
    Status,
    Turn,
    Wait,
)

# From which phases a call may be requested, by the reason for the attempt.
_REQUESTABLE = {
    Why.FIRST: (Phase.ASKED, Phase.APPROVED),
    Why.RETRY: (Phase.REQUESTED,),
    Why.TAKEOVER: (Phase.REQUESTED,),
    Why.STALE: (Phase.REQUESTED,),
    Why.ABSENT: (Phase.REQUESTED, Phase.ABSENT),
}
# From which phases a call may return: denied ones without a request, invalid ones before anything.
_RETURNABLE = (Phase.ASKED, Phase.REJECTED, Phase.REQUESTED, Phase.IN_DOUBT, Phase.ABSENT, Phase.APPROVED)
# Sources of a result that needs no request, and is always an error for the model.
_UNREQUESTED = (Source.DENIED, Source.INVALID)

# What a number in a snapshot can be: Avro's long.
_LONG = range(-(2**63), 2**63)


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
        raise _illegal(event, "comes before the run has started")
    _need(event.run_id == state.run_id, event, "meets the state of run {!r}", state.run_id)
    _need(event.seq == state.seq + 1, event, "does not follow seq {}", state.seq)
    _need(state.ended is None, event, "comes after the run has ended ({})", state.ended)
    _FOLDS[type(event)](state, event)
    state.seq, state.epoch, state.at = event.seq, event.epoch, event.at
    _remember_cause(state, event)
    return state


def _start(state: State | None, event: RunStarted) -> State:
    if state is not None:
        raise _illegal(event, "comes twice")
    _need(event.seq == 0, event, "does not have seq 0")
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
        _need(event.step == state.step + 1, event, "takes step {}, the next is {}", event.step, state.step + 1)
        _need(event.attempt == 1 and event.why is Why.FIRST, event, "is not a first attempt")
        _need(state.cancel_reason is None, event, "opens a call of a run that is being cancelled")
        state.step, state.accept_version = event.step, False
        state.model_call = ModelCall(event.step, event.attempt, event.epoch)
        return
    _need(event.step == call.step and event.attempt == call.attempt + 1, event, "is not the call's next attempt")
    allowed = (Why.TAKEOVER, Why.STALE) if call.is_open else (Why.RETRY,)
    _need(event.why in allowed, event, "cannot be for {} here", event.why)
    state.accept_version = False
    state.unaccounted_calls += event.why is Why.TAKEOVER
    call.lost += event.why is Why.TAKEOVER
    call.attempt, call.epoch, call.is_open, call.retry_at, call.error = event.attempt, event.epoch, True, None, None


def _model_responded(state: State, event: ModelResponded) -> None:
    _need_open_model_call(state, event)
    ids = [asked.tool_call_id for asked in event.tool_calls]
    _need(len(set(ids)) == len(ids), event, "holds two tool calls of one id")
    usage = dict(state.usage)
    for name, count in event.usage:
        usage[name] = usage.get(name, 0) + count
    cost = state.cost_nano_usd + (event.cost_nano_usd or 0)
    is_storable = all(number in _LONG for number in (cost, *usage.values()))
    _need(is_storable, event, "brings the run's usage or cost out of 64 bits")
    state.model_call = None
    _append(state, Entry(EntryKind.RESPONSE, event.seq, event.message, message_format=event.message_format))
    state.turn = Turn(Call(asked) for asked in event.tool_calls)
    state.used_tools.update(asked.tool for asked in event.tool_calls)
    state.usage, state.cost_nano_usd = usage, cost
    state.unpriced_calls += event.cost_nano_usd is None


def _model_call_failed(state: State, event: ModelCallFailed) -> None:
    call = _need_open_model_call(state, event)
    # Said by another owner than the one that asked: what became of the completion, and its spend, nobody knows.
    state.unaccounted_calls += event.epoch != call.epoch
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
    _need(event.tool == call.asked.tool, event, "names {!r}, the model asked for {!r}", event.tool, call.asked.tool)
    _need(call.phase in _REQUESTABLE[event.why], event, "({}) is for a call that is {}", event.why, call.phase)
    _need(event.attempt == call.attempt + 1, event, "has attempt {} after {}", event.attempt, call.attempt)
    _need(
        event.approval_id == call.approval_id, event, "names approval {}, not {}", event.approval_id, call.approval_id
    )
    _need(event.idempotency_key == state.key(event.step), event, "has another step's key: {}", event.idempotency_key)
    _need(call.arguments in (None, event.arguments), event, "has other arguments than were approved or tried before")
    if event.why is FIRST:
        _need_openable(state, event, call)
    # A verdict that a call did not happen is about a lost owner's; about its own calls an owner asks by itself.
    is_foreign = event.cause is not None and event.epoch != call.epoch
    _take_step(state, event, call, event.step)
    call.phase, call.arguments, call.recovery = Phase.REQUESTED, event.arguments, event.recovery
    call.timeout_ms, call.attempt, call.epoch = event.timeout_ms, event.attempt, event.epoch
    call.sequential = event.sequential
    call.key_ttl_ms, call.settle_ms, call.dedupe = event.key_ttl_ms, event.settle_ms, event.dedupe
    call.first_requested_at = event.first_requested_at
    # A state of requests as an earlier release writes them stays what that release makes of them, byte for byte.
    call.requested_at = None if event.first_requested_at is None else event.at
    call.count(event.why, is_foreign=is_foreign)
    state.accept_version = False


def _tool_returned(state: State, event: ToolReturned) -> None:
    call = _call_by_id(state, event, event.tool_call_id)
    _need(call.phase in _RETURNABLE, event, "ends a call that is {}", call.phase)
    _need(event.attempt == call.attempt, event, "has attempt {}, the call is at {}", event.attempt, call.attempt)
    _need((event.source is Source.DENIED) == (call.phase is Phase.REJECTED), event, "({}) does not fit", event.source)
    _need(call.attempt > 0 or event.source in _UNREQUESTED, event, "({}) comes without a request", event.source)
    _need(event.is_error or event.source not in _UNREQUESTED, event, "({}) is no success", event.source)
    _need_in_order(state, event, call)
    _take_step(state, event, call, event.step)
    seen = event.for_model if event.for_model is not None else event.result
    call.phase, call.patch = RETURNED, event.patch
    # The outcome's text: its member is no text to the compiled codec, which would leave it to fastavro.
    outcome = event.outcome.value
    call.entry = Entry(EntryKind.TOOL, event.seq, seen, event.tool_call_id, call.asked.tool, outcome)
    _close_turn_if_complete(state)


def _need_openable(state: State, event: ToolCallRequested | Interrupted, call: Call) -> None:
    """Nothing new is started once a cancel was requested, and calls are opened in the completion's order."""
    _need(state.cancel_reason is None, event, "opens a call of a run that is being cancelled")
    _need_in_order(state, event, call)


def _need_in_order(state: State, event: Event, call: Call) -> None:
    """See that a call that was only asked for takes its step after every call before it has."""
    if call.phase is not ASKED:
        return
    for other in state.turn.unreturned():
        if other.sequential:
            raise _illegal(event, "is opened beside a sequential call")
    first = state.turn.first_unopened()
    if first is not None and first is not call:
        raise _illegal(event, f"comes before tool call {first.asked.tool_call_id!r} is opened")


def _take_step(state: State, event: ToolCallRequested | ToolReturned, call: Call, step: int) -> None:
    """Give a call that has no step the run's next; one that has keeps it. Checked last: it changes the state."""
    if call.step:
        _need(step == call.step, event, "has step {}, the call has {}", step, call.step)
        return
    _need(step == state.step + 1, event, "takes step {}, the next is {}", step, state.step + 1)
    call.step = state.step = step


def _close_turn_if_complete(state: State) -> None:
    if not state.turn.is_complete:
        return
    for call in state.turn:
        if call.entry is not None:
            _append(state, call.entry)
        if call.patch is not None:
            state.due_patches.append((call.step, call.patch))
    state.turn = Turn()
    state.applied_patches = 0


def _state_patched(state: State, event: StatePatched) -> None:
    _need(any(step == event.step for step, _ in state.due_patches), event, "is not due for step {}", event.step)
    _need(event.remaining >= 0, event, "has {} changes remaining", event.remaining)
    state.values[event.key] = event.value
    state.applied_patches += 1
    if event.remaining == 0:
        state.due_patches, state.applied_patches = [], 0


# --- waits ------------------------------------------------------------------------------------------------------


def _interrupted(state: State, event: Interrupted) -> None:
    _need(event.wait_id == state.key(event.step), event, "has wait {}, not that of step {}", event.wait_id, event.step)
    _need(event.wait_id not in state.waits, event, "opens {}, which is open", event.wait_id)
    call = None if event.tool_call_id is None else _call_by_id(state, event, event.tool_call_id)
    if event.reason is WaitReason.INDETERMINATE:
        if call is None or call.phase is not Phase.REQUESTED or call.step != event.step:
            raise _illegal(event, "doubts a call that is not open")
        call.phase = Phase.IN_DOUBT
    else:
        _need(event.step == state.step + 1, event, "takes step {}, the next is {}", event.step, state.step + 1)
        if event.reason is WaitReason.AWAITING_APPROVAL:
            if call is None or call.phase is not Phase.ASKED or event.arguments is None:
                raise _illegal(event, "guards no call that was asked for")
            _need_openable(state, event, call)
            _need(event.arguments_digest == event.arguments.digest, event, "has another digest than its arguments")
            call.phase, call.approval_id, call.arguments = Phase.GATED, event.wait_id, event.arguments
            call.step, call.sequential = event.step + 1, event.sequential
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
            _need(event.decision in ("approved", "rejected"), event, "has decision {!r}", event.decision)
            call.phase = Phase.APPROVED if event.decision == "approved" else Phase.REJECTED
            call.remark = event.comment if call.phase is Phase.REJECTED else None
            state.used_approvals[event.wait_id] = (event.decision or "", event.by or "")
        case WaitReason.INDETERMINATE:
            doubted = state.call_at(wait.step)
            in_doubt = doubted is not None and doubted.phase is Phase.IN_DOUBT
            _need(in_doubt == (event.decision == "absent"), event, "leaves a call in doubt, or is for one that is not")
            if doubted is not None and in_doubt:
                doubted.phase = Phase.ABSENT
        case WaitReason.ERROR:
            _forget_losses(state)
        case _:
            pass
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
    _need(event.patches is None, event, "brings a migration's patches, which this code cannot apply")
    state.version, state.accept_version = event.new, False
    if event.first_message is not None:
        _append(state, Entry(EntryKind.USER, event.seq, event.first_message))


def _cancel_requested(state: State, event: CancelRequested) -> None:
    _need(state.cancel_reason is None, event, "comes twice")
    state.cancel_reason = event.reason


def _run_completed(state: State, event: RunCompleted) -> None:
    _need(_quiet(state) and state.cancel_reason is None, event, "comes while something is open, or against a cancel")
    state.ended, state.output = Status.COMPLETED, event.output


def _run_failed(state: State, event: RunFailed) -> None:
    _need(_quiet(state), event, "comes while something is open")
    state.ended, state.error = Status.FAILED, event.error


def _run_cancelled(state: State, event: RunCancelled) -> None:
    _need(state.cancel_reason is not None, event, "was not asked for")
    model_open = state.model_call is not None and state.model_call.is_open
    _need(not model_open and not state.open_calls(), event, "comes while a call is open")
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
    call = state.turn.of(tool_call_id)
    if call is None:
        raise _illegal(event, f"names tool call {tool_call_id!r}, which is not of the open turn")
    return call


def _need(condition: bool, event: RunEvent, what: str, *facts: object) -> None:  # noqa: FBT001 - reads as a sentence
    """Refuse the event unless the condition holds; ``what`` is formatted with the facts only then."""
    if not condition:
        raise _illegal(event, what.format(*facts))


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
