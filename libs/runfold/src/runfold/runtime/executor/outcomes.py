"""What an effect's outcome means for the run: the recovery classes at work for the live owner's own calls."""

from __future__ import annotations

from runfold.core import drafts
from runfold.core.events import ModelCallFailed, ModelResponded, Recovery, Source, WaitReason, Why
from runfold.core.payload import Inline
from runfold.core.policy import LOOKUP_TRIES, MAX_LOOKUP_PAUSE_S, MODEL_ATTEMPTS, lookup_backoff, model_backoff
from runfold.core.state import Call, ModelCall, Phase, State
from runfold.core.text import clip
from runfold.ports.agents import Begun, ModelFailure, NotStarted, NotThere, Unknown
from runfold.runtime.executor import again, kept
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import (
    Answered,
    Crashed,
    EffectKey,
    EffectOutcome,
    ModelOutcome,
    Sealed,
    ToolOutcome,
    Unprepared,
)
from runfold.runtime.executor.run import Run

_CANCELLED = "the run was cancelled before it was performed"
_NOT_REPEATED = "it failed and was not tried again"


def take(run: Run, batch: Batch, key: EffectKey, outcome: EffectOutcome) -> None:
    """Add what an outcome causes; one whose attempt is not open any more causes nothing."""
    state = batch.state
    if isinstance(outcome, NotStarted | Unprepared):
        run.world.effects.forget(key)
    if state is None or not state.is_open(key.step, key.attempt):
        return
    call = state.call_at(key.step)
    if isinstance(outcome, Unprepared):
        _unprepared(run, batch, state, call, outcome.error)
    elif call is not None and isinstance(outcome, ToolOutcome):
        _tool(run, batch, state, call, key, outcome)
    elif call is None and state.model_call is not None and isinstance(outcome, ModelOutcome):
        _model(run, batch, state, state.model_call, outcome)
    else:
        raise TypeError(f"step {key.step} cannot end with {type(outcome).__name__}")


# --- model calls ------------------------------------------------------------------------------------------------


def _model(run: Run, batch: Batch, state: State, call: ModelCall, outcome: ModelOutcome) -> None:
    match outcome:
        case Answered():
            run.stale_appends.pop(call.step, None)
            batch.add(
                ModelResponded(
                    **drafts.envelope(state, batch.stamp()),
                    step=call.step,
                    attempt=call.attempt,
                    message=outcome.message,
                    message_format=outcome.message_format,
                    tool_calls=outcome.tool_calls,
                    finish_reason=outcome.finish_reason,
                    usage=outcome.usage,
                    cost_nano_usd=outcome.cost_nano_usd,
                    model=outcome.model,
                )
            )
        case ModelFailure():
            model_failed(run, batch, state, call, outcome)
        case Crashed(error):
            model_failed(run, batch, state, call, ModelFailure(error, retryable=False))
        case NotStarted():
            _again_for_freshness(run, EffectKey(state.run_id, call.step, call.attempt))


def model_failed(run: Run, batch: Batch, state: State, call: ModelCall, failure: ModelFailure) -> None:
    """Record that there is no completion, and when the model is asked again, if it is."""
    retry_at = None
    if failure.retryable and call.failures + 1 < MODEL_ATTEMPTS and state.cancel_reason is None:
        world = run.world
        delay = model_backoff(call.failures, world.chance.jitter(), failure.retry_after)
        retry_at = world.clock.now_ms() + int(delay * 1000)
    batch.add(
        ModelCallFailed(
            **drafts.envelope(state, batch.stamp()),
            step=call.step,
            attempt=call.attempt,
            error=clip(failure.error),
            retry_at=retry_at,
        )
    )


def _unprepared(run: Run, batch: Batch, state: State, call: Call | None, error: str) -> None:
    if state.cancel_reason is None:
        hold_for_payload(batch, state, error)
    elif call is not None:
        again.give_up_unperformed(run, batch, state, call, _CANCELLED)
    elif state.model_call is not None:
        model_failed(run, batch, state, state.model_call, ModelFailure(error, retryable=False))


def hold_for_payload(batch: Batch, state: State, error: str) -> None:
    """Stop a run that needs an object that is gone; once it is back, a resume goes on exactly there."""
    if state.operational_wait() is None:
        mend = f"put the object back, then `runfold resume {state.run_id} --by NAME`"
        detail = {"error": clip(f"a payload is missing: {error}; {mend}")}
        batch.add(drafts.interruption(state, batch.stamp(), WaitReason.ERROR, detail))


# --- tool calls -------------------------------------------------------------------------------------------------


def _tool(run: Run, batch: Batch, state: State, call: Call, key: EffectKey, outcome: ToolOutcome) -> None:
    match outcome:
        case Sealed():
            _returned(run, batch, state, call, key, outcome)
        case NotStarted():
            _again_for_freshness(run, key)
        case _ if call.phase is Phase.IN_DOUBT:
            return
        case NotThere() if call.is_kept:
            kept.not_found(run, batch, state, call)
        case NotThere():
            _absent(run, batch, state, call)
        case Begun(attempt):
            kept.begun(run, batch, state, call, attempt)
        case Unknown(error) | Crashed(error) if key.lookup:
            _undecided(run, batch, state, call, key, error)
        case Unknown():
            _unknown(run, batch, state, call, outcome)
        case Crashed(error):
            # Our own code failed around the author's: whether the effect happened is as unknown as after a crash.
            _unknown(run, batch, state, call, Unknown(error))


def _returned(run: Run, batch: Batch, state: State, call: Call, key: EffectKey, outcome: Sealed) -> None:
    run.stale_appends.pop(key.step, None)
    run.lookup_tries.pop(key, None)
    source = Source.RECONCILED if key.lookup else Source.CALL
    if outcome.returned.from_table:
        source = Source.EFFECTS_TABLE
    batch.add(
        drafts.tool_returned(
            state,
            batch.stamp(),
            call,
            source,
            outcome.returned.outcome,
            outcome.result,
            for_model=outcome.for_model,
            patch=outcome.patch,
        )
    )


def _unknown(run: Run, batch: Batch, state: State, call: Call, outcome: Unknown) -> None:
    """An exception or a time-out: nobody knows whether it happened."""
    run.troubles[call.step] = outcome.error
    if call.is_kept:
        run.after(0.0, again.ask_later(run, call))
        return
    match call.recovery:
        case Recovery.RERUN | Recovery.KEYED if again.may_retry(run, state, call):
            run.after_backoff(call.retries, again.request_later(run, call, Why.RETRY))
        case Recovery.RERUN:
            again.fail(batch, state, call, outcome.error)
        case Recovery.LOOKUP:
            grace = run.world.settings.grace_s if outcome.timed_out else 0.0
            if not outcome.timed_out:
                run.certain_from[_attempt(state, call)] = run.world.clock.elapsed()
            run.after(grace, again.ask_later(run, call))
        case _:
            batch.add(drafts.doubt(state, batch.stamp(), call, outcome.error))


def _undecided(run: Run, batch: Batch, state: State, call: Call, key: EffectKey, error: str) -> None:
    """The lookup failed, or does not know either; or the effects table does not answer."""
    tries = run.lookup_tries.get(key, 0) + 1
    run.lookup_tries[key] = tries
    agent = run.agent
    spec = None if agent is None or call.is_kept else agent.tool(call.asked.tool)
    if tries >= (LOOKUP_TRIES if spec is None else spec.lookup_tries):
        asked = "answers of the effects table" if call.is_kept else "lookups"
        trouble = run.troubles.get(call.step)
        before = "" if trouble is None else f"; the call itself: {trouble}"
        said = f"{tries} {asked} did not decide it; the last: {error}{before}"
        batch.add(drafts.doubt(state, batch.stamp(), call, said))
    else:
        run.after(lookup_backoff(tries - 1), again.ask_later(run, call))


def _absent(run: Run, batch: Batch, state: State, call: Call) -> None:
    """The lookup says that it did not happen: if that can be believed, it is executed again."""
    left = _unsettled(run, state, call)
    if left > 0:
        run.after(min(left, MAX_LOOKUP_PAUSE_S), again.ask_later(run, call))
    elif again.is_forgotten(run, call):
        said = again.forgotten(run, call, "that its lookup finds nothing proves nothing")
        batch.add(drafts.doubt(state, batch.stamp(), call, said))
    elif again.may_retry(run, state, call):
        run.after_backoff(call.absents, again.request_later(run, call, Why.ABSENT))
    else:
        again.fail(batch, state, call, f"{_NOT_REPEATED}; a lookup says that it did not happen")


def _unsettled(run: Run, state: State, call: Call) -> float:
    """For how many seconds more the lookup may miss what the call did: from when it could act no more, ``settle``.

    Of a call that timed out nobody knows that moment: its thread may go on for long. It lies before the first "absent",
    which no lookup says while a thread of the call still runs.
    """
    if call.settle_ms is None:
        return 0.0
    now = run.world.clock.elapsed()
    return run.certain_from.setdefault(_attempt(state, call), now) + call.settle_ms / 1000 - now


def _attempt(state: State, call: Call) -> EffectKey:
    return EffectKey(state.run_id, call.step, call.attempt)


def _again_for_freshness(run: Run, key: EffectKey) -> None:
    """A request's acknowledgement came too late to prove anything: append it again, a bounded number of times."""
    run.stale_appends[key.step] += 1
    settings, times = run.world.settings, run.stale_appends[key.step]
    if run.tenure.writer.over.done():
        return
    if times > settings.max_stale:
        run.tenure.writer.end(f"acknowledgements stay older than {settings.freshness_s} s: this process is starved")
        return
    run.after(0.1 * 2**times, lambda later: _stale_again(run, key, later))


def _stale_again(run: Run, key: EffectKey, batch: Batch) -> None:
    """Append a request again that was certainly not performed; of a run being cancelled, give it up.

    This very request only: another that dangles may be somebody else's, and performed.
    """
    state = batch.known
    if not state.is_open(key.step, key.attempt) or run.world.effects.alive(key):
        return
    if state.operational_wait() is not None and state.cancel_reason is None:
        return
    call, model = state.call_at(key.step), state.model_call
    stale = model if call is None else call
    if stale is not None and state.cancel_reason is None and not again.is_its_turn(run, stale, stale.lost - 1):
        run.after(again.SUSPECT_PAUSE_S, lambda later: _stale_again(run, key, later))
        return
    if call is not None and call.phase is Phase.REQUESTED:
        if state.cancel_reason is None:
            again.request(run, batch, state, call, Why.STALE)
        else:
            again.give_up_unperformed(run, batch, state, call, _CANCELLED)
    elif call is None and model is not None:
        if state.cancel_reason is None:
            request_model_again(run, batch, state, Why.STALE)
        else:
            model_failed(run, batch, state, model, ModelFailure(_CANCELLED, retryable=False))


def request_model_again(run: Run, batch: Batch, state: State, why: Why) -> None:
    """Request the next attempt of the open model call."""
    agent = run.agent
    if agent is not None:
        batch.add(drafts.model_call(state, batch.stamp(), why, Inline(agent.params)))
