"""Metrics: hooks become numbers, each under a name of the list, none without use."""

from runfold.runtime.compactor import PartitionStatus
from runfold.service.metrics import CompactorCollector, ExecutorCounters, Metrics, Name, ReconcilerCounters


def test_the_executor_s_hooks_are_counted() -> None:
    metrics = Metrics()
    counters = ExecutorCounters(metrics)
    counters.partition_claimed(3, 17)
    counters.partition_restored(3, 5, 0.2)
    counters.input_settled("dead")
    counters.events_appended(4)
    counters.step_performed("tool", 0.3)
    counters.run_parked(3)
    counters.epoch_over(3, "a foreign claim")
    shown = metrics.exposition().decode()
    assert f"{Name.OWNED_PARTITIONS} 1.0" in shown
    assert f'{Name.RUNS_IN_MEMORY}{{partition="3"}} 5.0' in shown
    assert f'{Name.INPUTS}_total{{outcome="dead"}} 1.0' in shown
    assert f"{Name.EVENTS}_total 4.0" in shown
    counters.partition_released(3)
    assert f"{Name.OWNED_PARTITIONS} 0.0" in metrics.exposition().decode()


def test_the_compactor_is_asked_when_it_is_scraped() -> None:
    metrics = Metrics()
    partitions: list[PartitionStatus] = []
    CompactorCollector(metrics, lambda: partitions)
    partitions.append(PartitionStatus(2, applied=7, end=10, void=1))
    shown = metrics.exposition().decode()
    assert f'{Name.LAG}{{partition="2"}} 3.0' in shown
    assert f'{Name.VOID}_total{{partition="2"}} 1.0' in shown


def test_every_name_is_used() -> None:
    metrics = Metrics()
    ExecutorCounters(metrics)
    CompactorCollector(metrics, list)
    ReconcilerCounters(metrics)
    families = {family.name for family in metrics.registry.collect()}
    assert families == {name.value for name in Name}
