"""The snapshot compactor: folds the log into snapshots and projections, one transaction per batch."""

from __future__ import annotations

from runfold.runtime.compactor.engine import Compactor
from runfold.runtime.compactor.settings import CompactorSettings, PartitionStatus

__all__ = ["Compactor", "CompactorSettings", "PartitionStatus"]
