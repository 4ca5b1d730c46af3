"""See ``runfold.testing.simulation.loop``."""

from runfold.testing.simulation.loop import DeadlockError, run_virtual

__all__ = ["DeadlockError", "run_virtual"]
