"""The simulation: the real runtime on virtual time, with processes that pause and die at any await."""
