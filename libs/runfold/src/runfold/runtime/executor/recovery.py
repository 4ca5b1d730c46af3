"""What a new owner does about requests without an outcome, by the class that each request froze.

An effect of this very process that survived the re-claim is attached to, and its outcome appended. A request of an
earlier epoch of this process that became no effect was never performed. Of everything else nobody knows.
"""

from __future__ import annotations

from runfold.core import drafts
from runfold.core.events import Recovery, Why
from runfold.core.policy import lost_too_often
from runfold.core.state import Call, ModelCall, Phase, State
from runfold.ports.agents import ModelFailure
from runfold.runtime.executor import again, launch, outcomes
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import EffectKey
from runfold.runtime.executor.run import Run


def attach_survivors(run: Run) -> None:
    """Listen to the effects of this process that have outlived an epoch; drop what is not open any more.

    Of a run that cannot be read nobody knows what is open: what is known of it is kept for the epoch that can read it.
    """
    state = run.state
    if state is None or run.parked is not None:
        return
    effects = run.world.effects
    for key in effects.keys(run.run_id):
        if state.is_open(key.step, key.attempt):
            effects.attach(key, run.tenure.epoch, run.hear)
        else:
            effects.forget(key)


def recover(run: Run, batch: Batch) -> None:
    """Deal with every dangling request of a run that this code may drive."""
    state = batch.known
    if state.model_call is not None and state.model_call.is_open:
        _recover_model(run, batch, state, state.model_call)
    for call in list(state.turn):
        if call.phase is Phase.REQUESTED and not _is_held(state):
            _recover_call(run, batch, state, call)


def _is_held(state: State) -> bool:
    """Whether the run is held back as a whole. A cancel does not wait until somebody lets it go on."""
    return state.operational_wait() is not None and state.cancel_reason is None


def _recover_model(run: Run, batch: Batch, state: State, call: ModelCall) -> None:
    tenure = run.tenure
    if tenure.world.effects.alive(EffectKey(state.run_id, call.step, call.attempt)):
        return
    if state.cancel_reason is not None:
        error = "the run was cancelled, and the process that had asked is gone"
        outcomes.model_failed(run, batch, state, call, ModelFailure(error, retryable=False))
    elif call.epoch in tenure.own_epochs:
        outcomes.request_model_again(run, batch, state, Why.STALE)
    elif lost_too_often(call):
        again.stop(batch, state, call.step)
    else:
        _take_model_call_over(run, batch, state, call)


def _take_model_call_over(run: Run, batch: Batch, state: State, call: ModelCall) -> None:
    if again.is_its_turn(run, call, call.lost):
        outcomes.request_model_again(run, batch, state, Why.TAKEOVER)
        return
    attempt = call.attempt

    def action(later: Batch) -> None:
        now = later.known
        is_same = now.model_call is call and call.is_open and call.attempt == attempt
        if is_same and not run.tenure.draining and not _is_held(now):
            _recover_model(run, later, now, call)

    run.after(again.SUSPECT_PAUSE_S * (1 + run.world.chance.jitter()), action)


def _recover_call(run: Run, batch: Batch, state: State, call: Call) -> None:
    tenure = run.tenure
    key = EffectKey(state.run_id, call.step, call.attempt)
    if tenure.world.effects.alive(key) or tenure.world.effects.alive(key._replace(lookup=True)):
        return
    never_performed = call.epoch in tenure.own_epochs
    if state.cancel_reason is not None:
        _recover_cancelled(run, batch, state, call, never_performed=never_performed)
    elif never_performed:
        again.request(run, batch, state, call, Why.STALE)
    elif call.is_kept:
        launch.start_lookup(run, call)
    elif call.recovery in (Recovery.RERUN, Recovery.KEYED):
        if lost_too_often(call):
            again.stop(batch, state, call.step)
        else:
            again.take_over(run, batch, state, call)
    elif call.recovery is Recovery.MANUAL:
        _doubt_later(run, call)
    # LOOKUP: the reconciler asks, and its verdict arrives as an input.


def _recover_cancelled(run: Run, batch: Batch, state: State, call: Call, *, never_performed: bool) -> None:
    if never_performed:
        again.give_up_unperformed(run, batch, state, call, "the run was cancelled before it was performed")
    elif call.is_kept:
        launch.start_lookup(run, call)
    elif call.recovery in (Recovery.RERUN, Recovery.KEYED):
        error = "the run was cancelled, and the process that performed it is gone"
        again.give_up(run, batch, state, call, error)
    elif call.recovery is Recovery.MANUAL:
        _doubt_later(run, call)


def _doubt_later(run: Run, call: Call) -> None:
    """A dead writer's MANUAL call: a zombie may still perform it until its time and the grace are over."""
    tenure, attempt = run.tenure, call.attempt
    bound = call.timeout_ms / 1000 + tenure.world.settings.grace_s

    def action(batch: Batch) -> None:
        state = batch.known
        if state.call_at(call.step) is not call:
            return
        if call.phase is Phase.REQUESTED and call.attempt == attempt:
            batch.add(drafts.doubt(state, batch.stamp(), call, "the process that performed it is gone"))

    run.after(bound - tenure.since_claim(), action)
