"""Metrics: every name stands in this one list."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, generate_latest


class Name(StrEnum):
    """Every metric of the services."""

    STEPS = "runfold_steps"
    STEP_SECONDS = "runfold_step_seconds"
    INPUTS = "runfold_inputs_settled"
    VOID = "runfold_void_records"
    CLAIMS = "runfold_claims"
    OWNED = "runfold_owned_partitions"
    ACTIVE = "runfold_active_runs"
    COMMITS = "runfold_compactor_commits"
    APPLIED = "runfold_compactor_applied_offset"
    SET_ASIDE = "runfold_snapshots_set_aside"
    PARKED = "runfold_parked_runs"
    LOOKUPS = "runfold_lookups"


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def exposition(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        return generate_latest(self.registry)
