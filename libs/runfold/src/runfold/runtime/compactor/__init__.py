"""The snapshot compactor, as a library. Where to start reading: ``engine`` -> ``partition`` -> ``memory``.

* ``engine``      partitions come and go with the consumer group's assignment
* ``partition``   follow, fold, publish, commit; whatever fails, start again from a fresh read
* ``memory``      the runs in memory: what a batch changes, which snapshots are due, when a run may leave
* ``projection``  from a run's state to its rows
* ``outbox``      notifications and copies of dead inputs, acknowledged before the commit
* ``settings``    its numbers, and what it tells of itself
"""

from __future__ import annotations

from runfold.runtime.compactor.engine import Compactor
from runfold.runtime.compactor.settings import CompactorSettings, PartitionStatus

__all__ = ["Compactor", "CompactorSettings", "PartitionStatus"]
