"""Calls whose process was lost during all attempts but the last one that they have.

Of everything that is in flight when a process dies nobody knows what has killed it. When all of it is tried again at
once, a run that kills its process takes its neighbours with it: three crashes, and they are all interrupted. So the
last attempt is made one call at a time: the killer dies alone, and its neighbours complete. Where there are many (an
operator has killed processes, twice), a twentieth of them goes at a time, so that this ends soon all the same.
"""

from __future__ import annotations

from typing import Final

from runfold.runtime.executor.effects import EffectKey

SHARE: Final = 20
HELD_S: Final = 10.0
"""A call that has run for so long does not keep the others waiting any more."""
_ASKS_S: Final = 5.0
"""Who has not asked for so long does not wait any more: its run was cancelled, or its epoch is over."""
_SWEEP_S: Final = 0.25


class Suspects:
    """Those of one process; times are seconds of ``Clock.elapsed``."""

    def __init__(self) -> None:
        self._waiting: dict[EffectKey, float] = {}
        self._at_work: dict[EffectKey, float] = {}
        self._swept = 0.0

    def admit(self, key: EffectKey, now: float) -> bool:
        """Whether this attempt may be requested now; else ask again, well before five seconds are over."""
        self._sweep(now)
        if key in self._at_work:
            return True
        self._waiting[key] = now
        if len(self._at_work) >= max(1, (len(self._waiting) + len(self._at_work)) // SHARE):
            return False
        del self._waiting[key]
        self._at_work[key] = now
        return True

    def ended(self, key: EffectKey) -> None:
        """Its process has survived it."""
        self._at_work.pop(key, None)

    def _sweep(self, now: float) -> None:
        if now - self._swept < _SWEEP_S:
            return
        self._swept = now
        self._waiting = {key: asked for key, asked in self._waiting.items() if now - asked < _ASKS_S}
        self._at_work = {key: began for key, began in self._at_work.items() if now - began < HELD_S}
