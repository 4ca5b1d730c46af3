"""The reconciler: finds out what became of calls whose owner is gone or hangs, and tells the run's owner.

It decides nothing about a run. It asks the author's lookup and publishes a verdict, an input like any other, which
the owner of the partition holds against its own state.

* ``judging``     an answer of a lookup -> a verdict, or when to ask again: pure
* ``asking``      one due call: its arguments, its run's state, the lookup
* ``reconciler``  the loop: lease, ask, publish, postpone
* ``settings``    numbers and names
"""

from __future__ import annotations

from runfold.runtime.reconciler.reconciler import Reconciler
from runfold.runtime.reconciler.settings import ReconcilerMetrics, ReconcilerSettings

__all__ = ["Reconciler", "ReconcilerMetrics", "ReconcilerSettings"]
