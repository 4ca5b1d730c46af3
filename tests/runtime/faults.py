"""See ``runfold.testing.simulation.faulty_log``."""

from runfold.testing.simulation.faulty_log import FaultyLog

__all__ = ["FaultyLog"]
