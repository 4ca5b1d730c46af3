"""The named invariants: they stand in the library, for authors' simulations and for the chaos on real servers."""

from runfold.testing.simulation.checkers import *  # noqa: F403 - every checker, under this name too
from runfold.testing.simulation.checkers import CHECKERS, Checker, Ending, check
from runfold.testing.simulation.outside import *  # noqa: F403 - those that it names from there

__all__ = ["CHECKERS", "Checker", "Ending", "check"]
