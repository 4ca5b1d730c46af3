"""The cluster of the simulation, under the names that these tests grew up with."""

from runfold.testing.simulation.cluster import TOPICS, Book
from runfold.testing.simulation.cluster import Cluster as System
from runfold.testing.simulation.cluster import ExecutorNode as Process

__all__ = ["TOPICS", "Book", "Process", "System"]
