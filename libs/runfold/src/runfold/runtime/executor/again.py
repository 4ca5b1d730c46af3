"""Another attempt of a call, or the reason why there is none."""

from __future__ import annotations

from runfold.core import drafts
from runfold.core.events import Cause, Outcome, Recovery, Source, WaitReason, Why
from runfold.core.payload import inline_json
from runfold.core.policy import MAX_LOST_ATTEMPTS, key_may_be_forgotten
from runfold.core.state import Call, ModelCall, Phase, State
from runfold.core.text import clip
from runfold.runtime.executor import launch
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import EffectKey
from runfold.runtime.executor.mailbox import Action
from runfold.runtime.executor.run import Run

SUSPECT_PAUSE_S = 0.3
_FORGOTTEN = (
    "the downstream remembers a key for {ttl:g} s (key_ttl), and that time is over or nearly so: {proves}; "
    "before: {trouble}"
)
_LOST = f"the process was lost during {MAX_LOST_ATTEMPTS} attempts of step %d; look at why before it is tried again"


def request(run: Run, batch: Batch, state: State, call: Call, why: Why, cause: Cause | None = None) -> None:
    """Request the next attempt of a call, unless sending its key once more might have a second effect."""
    if call.arguments is None or call.recovery is None:
        return
    stamp = batch.stamp(cause)
    # A first attempt that is requested again because it was stale has never been performed.
    may_have_happened = why is not Why.STALE or call.attempt > 1
    if call.recovery is Recovery.KEYED and may_have_happened and is_forgotten(run, call, call.timeout_ms):
        batch.add(drafts.doubt(state, stamp, call, forgotten(run, call, "running it again could have a second effect")))
        return
    batch.add(drafts.tool_call(state, stamp, call, why, call.arguments, call.recovery, call.timeout_ms))


def is_forgotten(run: Run, call: Call, until_sent_ms: int = 0) -> bool:
    """Whether the downstream may have forgotten the call's key."""
    clock = run.world.clock
    known_since = run.known_since.get(call.step, run.tenure.claimed_at)
    return key_may_be_forgotten(call, clock.now_ms(), clock.elapsed() - known_since, until_sent_ms)


def forgotten(run: Run, call: Call, proves: str) -> str:
    """Say why a key's age makes the call indeterminate."""
    trouble = run.troubles.get(call.step, "its process was lost")
    return _FORGOTTEN.format(ttl=(call.key_ttl_ms or 0) / 1000, proves=proves, trouble=trouble)


def take_over(run: Run, batch: Batch, state: State, call: Call) -> None:
    """Make the next attempt of a call whose process was lost; the last one that it has, apart from the others'."""
    if is_its_turn(run, call, call.lost):
        request(run, batch, state, call, Why.TAKEOVER)
    else:
        run.after(SUSPECT_PAUSE_S * (1 + run.world.chance.jitter()), request_later(run, call, Why.TAKEOVER))


def is_its_turn(run: Run, call: Call | ModelCall, lost: int) -> bool:
    """Whether an attempt behind ``lost`` further lost ones may be requested now; see ``suspects``."""
    if lost + 2 < MAX_LOST_ATTEMPTS:
        return True
    world = run.world
    return world.suspects.admit(EffectKey(run.run_id, call.step, call.attempt + 1), world.clock.elapsed())


def request_later(run: Run, call: Call, why: Why) -> Action:
    """Request the next attempt when its moment has come, if this one is still the open one by then."""
    attempt = call.attempt

    def action(batch: Batch) -> None:
        state = batch.known
        if not is_same(state, call, attempt) or (state.operational_wait() is not None and state.cancel_reason is None):
            return
        if state.cancel_reason is not None:
            error = "the run was cancelled before the next attempt"
            if why is Why.ABSENT:
                fail(batch, state, call, error)
            else:
                give_up(run, batch, state, call, error)
        elif run.tenure.draining:
            return
        elif why is Why.TAKEOVER:
            take_over(run, batch, state, call)
        else:
            request(run, batch, state, call, why)

    return action


def ask_later(run: Run, call: Call) -> Action:
    """Ask the lookup, or the effects table, when the moment has come."""
    attempt = call.attempt

    def action(batch: Batch) -> None:
        state = batch.known
        is_held = state.operational_wait() is not None and state.cancel_reason is None
        if is_same(state, call, attempt) and not is_held:
            launch.start_lookup(run, call)

    return action


def is_same(state: State, call: Call, attempt: int) -> bool:
    """Whether the state still holds this very attempt, open."""
    return state.call_at(call.step) is call and call.phase is Phase.REQUESTED and call.attempt == attempt


def may_retry(run: Run, state: State, call: Call) -> bool:
    """Whether the author allows one more attempt."""
    agent = run.agent
    spec = None if agent is None else agent.tool(call.asked.tool)
    retries = 0 if spec is None else spec.retries
    return state.cancel_reason is None and call.retries + call.absents < retries


def fail(batch: Batch, state: State, call: Call, error: str) -> None:
    """Tell the model that the call failed and had no effect that matters."""
    text = inline_json(clip(error))
    batch.add(drafts.tool_returned(state, batch.stamp(), call, Source.CALL, Outcome.FAILED, text))


def give_up(run: Run, batch: Batch, state: State, call: Call, error: str) -> None:
    """Start nothing more for a call whose outcome is unknown, since the run is being cancelled."""
    if call.is_kept:
        launch.start_closing(run, call, error)
    elif call.recovery is Recovery.RERUN:
        fail(batch, state, call, error)
    else:
        batch.add(drafts.doubt(state, batch.stamp(), call, error))


def give_up_unperformed(run: Run, batch: Batch, state: State, call: Call, error: str) -> None:
    """The same for an attempt that was certainly not performed; an earlier one may have been.

    Of LOOKUP and MANUAL there is none: they are attempted again only when the one before is known not to have happened.
    """
    if call.attempt > 1 and (call.is_kept or call.recovery is Recovery.KEYED):
        give_up(run, batch, state, call, error)
    else:
        fail(batch, state, call, error)


def stop(batch: Batch, state: State, step: int) -> None:
    """Interrupt a run that keeps losing its process."""
    batch.add(drafts.interruption(state, batch.stamp(), WaitReason.ERROR, {"error": _LOST % step, "step": step}))
