"""Which requests of a run are open: their outcome would still be taken."""

from __future__ import annotations

from runfold.core.state import Phase, State
from runfold.runtime.executor.effects import EffectKey


def has_open(state: State) -> bool:
    """Whether a request has no outcome yet, or is in doubt (its outcome may have survived)."""
    model = state.model_call
    return (model is not None and model.is_open) or any(
        call.phase in (Phase.REQUESTED, Phase.IN_DOUBT) for call in state.turn
    )


def is_open(state: State | None, key: EffectKey) -> bool:
    """Whether the very attempt of an effect is open, or in doubt."""
    if state is None or state.ended is not None:
        return False
    model = state.model_call
    if model is not None and model.step == key.step:
        return model.is_open and model.attempt == key.attempt
    call = state.call_at(key.step)
    return call is not None and call.attempt == key.attempt and call.phase in (Phase.REQUESTED, Phase.IN_DOUBT)
