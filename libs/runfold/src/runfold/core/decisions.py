"""``decide(state)``: what happens next in a run, as data. The shell performs it, after the durable append.

The mechanics of a turn (open the calls, execute the approved, deny the rejected, close waits) are the same for
every agent and stand here. Where the turn is closed, the *planner* is asked: a pure function of the state. The
default one is the tool-calling loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runfold.core.events import Recovery, WaitReason, Why
from runfold.core.state import Call, EntryKind, Phase, State, Status, Wait


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is decidable: something is open, or the run waits, or it has ended."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model. For a retry, ``why`` says so, and not before ``not_before`` (milliseconds since 1970)."""

    why: Why = Why.FIRST
    not_before: int = 0


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """Open these calls of the turn, in this order: validate, ask for approvals, request."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class RequestCall:
    """Execute a call that was approved, or that is known never to have happened."""

    call: Call
    why: Why


@dataclass(frozen=True, slots=True)
class Deny:
    """Tell the model that a person refused the call."""

    call: Call


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply the state changes of the closed turn."""


@dataclass(frozen=True, slots=True)
class CloseWait:
    """The call in doubt has returned after all."""

    wait: Wait


@dataclass(frozen=True, slots=True)
class Stop:
    """Interrupt the run with an error that a person has to look at."""

    error: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The last completion is the answer."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run without an answer."""

    error: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run at somebody's request."""

    open_keys: tuple[str, ...]


Decision = Nothing | CallModel | OpenCalls | RequestCall | Deny | Patch | CloseWait | Stop | Finish | Fail | Cancel
Plan = CallModel | Finish | Fail
Planner = Callable[[State], Plan]

NOTHING = Nothing()


def tool_calling(state: State) -> Plan:
    """Plan the default loop: ask the model until a completion asks for no tool."""
    last = state.transcript[-1]
    return Finish() if last.kind is EntryKind.RESPONSE else CallModel()


def decide(state: State, planner: Planner = tool_calling) -> Decision:
    """Say what happens next.

    Args:
        state: The run, all of its appended events folded.
        planner: Asked where a turn is closed and nothing is open; may raise, which the shell records.

    Returns:
        The next decision; ``Nothing`` when the run can only be moved by an outcome or an input.
    """
    if state.ended is not None:
        return NOTHING
    if state.cancel_reason is not None:
        return _decide_cancel(state)
    if state.operational_wait() is not None or not state.has_first_message:
        return NOTHING
    return _decide_free(state, planner)


def _decide_free(state: State, planner: Planner) -> Decision:
    """Decide for a run that nothing holds back as a whole."""
    returned = _returned_in_doubt(state)
    if returned is not None:
        return CloseWait(returned)
    if state.model_call is not None:
        return _decide_model_call(state)
    if state.turn:
        return _decide_turn(state)
    if state.due_patches:
        return Patch()
    return planner(state) if not state.waits else NOTHING


def status(state: State) -> Status:
    """Say what a person is told: ``waiting`` when something is waited for and nothing is open or decidable."""
    if state.ended is not None:
        return state.ended
    if state.operational_wait() is not None and state.cancel_reason is None:
        return Status.WAITING
    if not state.waits or state.open_calls() or (state.model_call is not None and state.model_call.is_open):
        return Status.RUNNING
    return Status.WAITING if isinstance(decide(state, _unasked), Nothing) else Status.RUNNING


def _unasked(_: State) -> Plan:
    return CallModel()


def _decide_cancel(state: State) -> Decision:
    if state.open_calls() or (state.model_call is not None and state.model_call.is_open):
        return NOTHING
    doubtful = [call for call in state.turn.unreturned() if call.phase is Phase.IN_DOUBT]
    return Cancel(tuple(state.key(call.step) for call in doubtful if call.recovery is not Recovery.RERUN))


def _returned_in_doubt(state: State) -> Wait | None:
    for wait in state.waits.values():
        if wait.reason is WaitReason.INDETERMINATE:
            call = state.call_at(wait.step)
            if call is None or call.phase is Phase.RETURNED:
                return wait
    return None


def _decide_model_call(state: State) -> Decision:
    call = state.model_call
    if call is None or call.is_open:
        return NOTHING
    if call.retry_at is None:
        return Stop(call.error or "the model call failed")
    return CallModel(Why.RETRY, call.retry_at)


def _decide_turn(state: State) -> Decision:
    # Calls that have their step go first: a sequential turn opens the next one only once they have returned.
    is_held = False
    for call in state.turn.unreturned():
        phase = call.phase
        if phase is Phase.REJECTED:
            return Deny(call)
        if phase is Phase.APPROVED:
            return RequestCall(call, Why.FIRST)
        if phase is Phase.ABSENT:
            return RequestCall(call, Why.ABSENT)
        is_held = is_held or call.sequential
    if is_held or state.turn.first_unopened() is None:
        return NOTHING
    return OpenCalls(state.turn.unopened())


def is_sequential(turn: list[Call], sequential: frozenset[str]) -> bool:
    """Whether the calls of a turn are opened one after the other, because one of their tools is sequential."""
    return bool(sequential) and any(call.asked.tool in sequential for call in turn)


def openable(asked: tuple[Call, ...], *, sequential: bool) -> tuple[Call, ...]:
    """Of the calls of a turn still to be opened, those that are opened now: of a sequential turn, only the next."""
    return asked[:1] if sequential else asked
