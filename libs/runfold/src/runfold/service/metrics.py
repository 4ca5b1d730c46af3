"""Metrics: every name stands in this one list; what a service counts is registered by the service alone.

No engine is imported here, so that each service imports its own alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from runfold.runtime.compactor import PartitionStatus

_EFFECT_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TAKE_OVER_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Name(StrEnum):
    """Every metric of the services; a counter is exposed with ``_total`` behind its name."""

    CLAIMS = "runfold_executor_claims"
    EPOCHS_OVER = "runfold_executor_epochs_over"
    TAKE_OVER_SECONDS = "runfold_executor_take_over_seconds"
    OWNED_PARTITIONS = "runfold_executor_owned_partitions"
    EVENTS = "runfold_executor_events_appended"
    INPUTS = "runfold_executor_inputs_settled"
    STEP_SECONDS = "runfold_executor_step_seconds"
    RUNS_IN_MEMORY = "runfold_executor_runs_in_memory"
    RUNS_PARKED = "runfold_executor_runs_parked"
    STORE_BEHIND = "runfold_executor_store_behind"
    SET_ASIDE = "runfold_executor_snapshots_set_aside"
    APPLIED = "runfold_compactor_applied_offset"
    LAG = "runfold_compactor_lag_records"
    COMPACTOR_PARKED = "runfold_compactor_runs_parked"
    COMPACTOR_STOPPED = "runfold_compactor_stopped"
    VOID = "runfold_compactor_void_records"
    COMMITS = "runfold_compactor_commits"
    SNAPSHOTS = "runfold_compactor_snapshots"
    COMPACTOR_SET_ASIDE = "runfold_compactor_snapshots_set_aside"
    NOTIFICATIONS = "runfold_compactor_notifications"
    DEAD = "runfold_compactor_dead_inputs"
    FAILURES = "runfold_compactor_failures_since_commit"
    LOOKUP_SECONDS = "runfold_reconciler_lookup_seconds"
    UNREACHABLE = "runfold_reconciler_unreachable"


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def exposition(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        return generate_latest(self.registry)


class ExecutorCounters:
    """The executor's hooks (``ExecutorMetrics``) on Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._claims = Counter(Name.CLAIMS, "Claims acknowledged", registry=registry)
        self._over = Counter(Name.EPOCHS_OVER, "Epochs that ended otherwise than by a hand-over", registry=registry)
        self._take_overs = Histogram(
            Name.TAKE_OVER_SECONDS, "From a claim to its restore", buckets=_TAKE_OVER_BUCKETS, registry=registry
        )
        self._owned = Gauge(Name.OWNED_PARTITIONS, "Partitions taken over and not let go", registry=registry)
        self._events = Counter(Name.EVENTS, "Events acknowledged", registry=registry)
        self._inputs = Counter(Name.INPUTS, "Inputs that got their record", ["outcome"], registry=registry)
        self._steps = Histogram(
            Name.STEP_SECONDS, "Effects performed", ["kind"], buckets=_EFFECT_BUCKETS, registry=registry
        )
        self._runs = Gauge(Name.RUNS_IN_MEMORY, "Runs held", ["partition"], registry=registry)
        self._parked = Counter(Name.RUNS_PARKED, "Runs that this code cannot drive", registry=registry)
        self._behind = Counter(Name.STORE_BEHIND, "Answers of Postgres that were not believed", registry=registry)
        self._set_aside = Counter(Name.SET_ASIDE, "Snapshots that could not be read", registry=registry)
        self._restored: set[int] = set()
        # Looked up for every input and every step: `labels` takes a lock and builds its key anew each time.
        self._input = cache(self._inputs.labels)
        self._step = cache(self._steps.labels)

    def partition_claimed(self, partition: int, epoch: int) -> None:  # noqa: ARG002 - the hook's signature
        """Count a claim."""
        self._claims.inc()

    def partition_restored(self, partition: int, runs: int, seconds: float) -> None:
        """Time a take-over."""
        self._take_overs.observe(seconds)
        self._restored.add(partition)
        self._owned.set(len(self._restored))
        self.runs_in_memory(partition, runs)

    def partition_released(self, partition: int) -> None:
        """Forget a partition."""
        self._restored.discard(partition)
        self._owned.set(len(self._restored))
        self.runs_in_memory(partition, 0)

    def epoch_over(self, partition: int, reason: str) -> None:  # noqa: ARG002 - the hook's signature
        """Count an epoch's unplanned end."""
        self._over.inc()

    def events_appended(self, count: int) -> None:
        """Count events."""
        self._events.inc(count)

    def input_settled(self, outcome: str) -> None:
        """Count an input."""
        self._input(outcome).inc()

    def step_performed(self, kind: str, seconds: float) -> None:
        """Time an effect."""
        self._step(kind).observe(seconds)

    def runs_in_memory(self, partition: int, count: int) -> None:
        """Take note of how many runs are held."""
        self._runs.labels(str(partition)).set(count)

    def run_parked(self, partition: int) -> None:  # noqa: ARG002 - the hook's signature
        """Count a run that cannot be driven."""
        self._parked.inc()

    def store_behind(self, partition: int) -> None:  # noqa: ARG002 - the hook's signature
        """Count an answer that was not believed."""
        self._behind.inc()

    def snapshots_set_aside(self, count: int) -> None:
        """Count snapshots that could not be read."""
        self._set_aside.inc(count)


class ReconcilerCounters:
    """The reconciler's hooks (``ReconcilerMetrics``) on Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._lookups = Histogram(
            Name.LOOKUP_SECONDS, "Calls examined", ["answer"], buckets=_EFFECT_BUCKETS, registry=registry
        )
        self._away = Counter(Name.UNREACHABLE, "Dependencies that did not answer", ["dependency"], registry=registry)

    def looked_up(self, answer: str, seconds: float) -> None:
        """Time an examined call."""
        self._lookups.labels(answer).observe(seconds)

    def unreachable(self, what: str) -> None:
        """Count a dependency that did not answer."""
        self._away.labels(what).inc()


class CompactorCollector(Collector):
    """What a compactor tells of its partitions, read when it is scraped."""

    _GAUGES: tuple[tuple[Name, str, Callable[[PartitionStatus], float]], ...] = (
        (Name.APPLIED, "Offset of the next log record to fold", lambda status: status.applied),
        (Name.LAG, "Log records not applied yet", lambda status: status.lag),
        (Name.COMPACTOR_PARKED, "Runs that cannot be folded", lambda status: status.parked),
        (Name.COMPACTOR_STOPPED, "1: the log is not what was recorded of it", lambda status: float(status.stopped)),
        (Name.FAILURES, "Fresh starts since the last commit", lambda status: status.failures),
    )
    _COUNTERS: tuple[tuple[Name, str, Callable[[PartitionStatus], float]], ...] = (
        (Name.VOID, "Void records met", lambda status: status.void),
        (Name.COMMITS, "Transactions committed", lambda status: status.commits),
        (Name.SNAPSHOTS, "Snapshots written", lambda status: status.snapshots),
        (Name.COMPACTOR_SET_ASIDE, "Snapshots that could not be read", lambda status: status.set_aside),
        (Name.NOTIFICATIONS, "Notifications sent", lambda status: status.notifications),
        (Name.DEAD, "Dead inputs copied", lambda status: status.dead),
    )

    def __init__(self, metrics: Metrics, status: Callable[[], Sequence[PartitionStatus]]) -> None:
        self._status = status
        metrics.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Give one family per metric, one sample per partition."""
        partitions = self._status()
        for name, about, read in self._GAUGES:
            gauge = GaugeMetricFamily(name, about, labels=["partition"])
            for status in partitions:
                gauge.add_metric([str(status.partition)], read(status))
            yield gauge
        for name, about, read in self._COUNTERS:
            counter = CounterMetricFamily(name, about, labels=["partition"])
            for status in partitions:
                counter.add_metric([str(status.partition)], read(status))
            yield counter
