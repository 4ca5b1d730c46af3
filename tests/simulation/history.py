"""See ``runfold.testing.simulation.history``."""

from runfold.testing.simulation.history import History, PartitionHistory, events_of

__all__ = ["History", "PartitionHistory", "events_of"]
