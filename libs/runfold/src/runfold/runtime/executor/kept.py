"""Calls whose outcome the effects table keeps (TRANSACTIONAL, ``dedupe=True``): what its answers mean.

The table is asked after every unknown outcome, and by a new owner before anything else. *Found* is believed. *Not
found* proves nothing while a transaction may still be about to commit; what follows proves it: another attempt, which
meets the key if it has been taken meanwhile, or closing the key before the model is told that nothing happened.
"""

from __future__ import annotations

from runfold.core import drafts
from runfold.core.events import Why
from runfold.core.policy import lost_too_often
from runfold.core.state import Call, State
from runfold.runtime.executor import again, launch
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.run import Run

_CANCELLED = "the run was cancelled before it happened"
_BEGUN = "attempt {attempt} began, and the effects table holds no outcome of it"


def not_found(run: Run, batch: Batch, state: State, call: Call) -> None:
    """Nothing stands under the key: execute it (again), or close it."""
    if state.cancel_reason is not None:
        launch.start_closing(run, call, _CANCELLED)
    elif state.operational_wait() is not None or run.tenure.draining:
        return  # asked again when the run is let go on, or by the next owner
    elif call.epoch not in run.tenure.own_epochs:
        if lost_too_often(call):
            again.stop(batch, state, call.step)
        else:
            again.take_over(run, batch, state, call)
    elif again.may_retry(run, state, call):
        run.after_backoff(call.retries, again.request_later(run, call, Why.RETRY))
    else:
        launch.start_closing(run, call, run.troubles.get(call.step, "it failed and was not tried again"))


def begun(run: Run, batch: Batch, state: State, call: Call, attempt: int) -> None:
    """The key is claimed and has no outcome: a person decides, once whoever claimed it can act no more."""
    is_own = attempt == call.attempt and call.epoch in run.tenure.own_epochs
    left = 0.0 if is_own else call.timeout_ms / 1000 + run.world.settings.grace_s - run.tenure.since_claim()
    if left > 0:
        run.after(left, again.ask_later(run, call))
        return
    said = _BEGUN.format(attempt=attempt)
    trouble = run.troubles.get(call.step)
    batch.add(drafts.doubt(state, batch.stamp(), call, said if trouble is None else f"{said}; it said: {trouble}"))
