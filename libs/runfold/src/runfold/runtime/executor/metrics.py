"""What an executor counts; the service implements it on Prometheus, everybody else leaves it at nothing."""

from __future__ import annotations

from typing import Protocol


class ExecutorMetrics(Protocol):
    """Hooks; all return at once and never raise."""

    def partition_claimed(self, partition: int, epoch: int) -> None:
        """A claim was acknowledged."""

    def partition_restored(self, partition: int, runs: int, seconds: float) -> None:
        """A take-over is done: runs in memory, seconds since the claim."""

    def partition_released(self, partition: int) -> None:
        """The partition is not this process's any more."""

    def epoch_over(self, partition: int, reason: str) -> None:
        """An epoch ended otherwise than by a hand-over."""

    def events_appended(self, count: int) -> None:
        """Events were acknowledged."""

    def input_settled(self, outcome: str) -> None:
        """An input got its record: ``event``, ``duplicate``, ``dead``, ``forwarded``, ``stale``."""

    def step_performed(self, kind: str, seconds: float) -> None:
        """A ``model``, ``tool`` or ``lookup`` effect ended."""

    def runs_in_memory(self, partition: int, count: int) -> None:
        """How many runs are held."""

    def run_parked(self, partition: int) -> None:
        """This code cannot drive a run."""

    def store_behind(self, partition: int) -> None:
        """Postgres answered from before what it had told already, and was not believed."""

    def snapshots_set_aside(self, count: int) -> None:
        """Snapshots could not be read; their runs were folded from the log."""


class NoMetrics:
    """Counts nothing."""

    def partition_claimed(self, partition: int, epoch: int) -> None:
        """Count nothing."""

    def partition_restored(self, partition: int, runs: int, seconds: float) -> None:
        """Count nothing."""

    def partition_released(self, partition: int) -> None:
        """Count nothing."""

    def epoch_over(self, partition: int, reason: str) -> None:
        """Count nothing."""

    def events_appended(self, count: int) -> None:
        """Count nothing."""

    def input_settled(self, outcome: str) -> None:
        """Count nothing."""

    def step_performed(self, kind: str, seconds: float) -> None:
        """Count nothing."""

    def runs_in_memory(self, partition: int, count: int) -> None:
        """Count nothing."""

    def run_parked(self, partition: int) -> None:
        """Count nothing."""

    def store_behind(self, partition: int) -> None:
        """Count nothing."""

    def snapshots_set_aside(self, count: int) -> None:
        """Count nothing."""
