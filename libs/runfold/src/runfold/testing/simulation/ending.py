"""What is left when it has been calm for long: what the checkers look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from runfold.adapters.memory.broker import Stored
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.core.state import State
from runfold.ports.store import StoredRun
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.cluster import TOPICS, Cluster, ExecutorNode
from runfold.testing.simulation.history import History, PartitionHistory

InputPlace = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True)
class Ending:
    """What is left when it has been calm for long.

    Attributes:
        partitions: The log; index = partition.
        log_ends: Offset of the next record to be appended; index = partition.
        inputs: Every record of every input topic.
        started: Runs that somebody started; ``home``: the partition of each.
        database: The tables, and ``stored`` the runs as they are loaded from there.
        downstream: What was really done.
        in_memory: Name of a living executor -> runs that it still holds.
        unstopped: Executors that were asked to stop and have not ended.
        unhandled: Errors that nobody took: of callbacks, and of tasks that nobody awaited.
        topics: Every record of every topic but the log: topic -> partition -> records.
    """

    partitions: list[PartitionHistory]
    log_ends: list[int]
    inputs: list[InputPlace]
    started: list[str]
    home: dict[str, int]
    database: MemoryDatabase
    stored: dict[str, StoredRun]
    downstream: Book
    in_memory: dict[str, int]
    unstopped: list[str]
    unhandled: list[str]
    topics: dict[str, list[list[Stored]]] = field(default_factory=dict)

    @classmethod
    async def of(
        cls,
        cluster: Cluster,
        history: History,
        book: Book,
        *,
        started: Collection[str],
        executors: Iterable[ExecutorNode],
        unstopped: list[str],
        unhandled: Sequence[str],
    ) -> Self:
        """Look at everything; the book is closed by that.

        Args:
            cluster, history, book: What is looked at.
            started: Runs that somebody started.
            executors: Those that live.
            unstopped, unhandled: See there.
        """
        broker, partitions = cluster.broker, range(cluster.partitions)
        seen = [act.run_id for act in book.calls] + [asked.run_id for asked in book.questions]
        return cls(
            partitions=history.partitions(),
            log_ends=[broker.bounds(TOPICS.log, partition)[1] for partition in partitions],
            inputs=[
                (topic, partition, offset)
                for topic in TOPICS.inputs
                for partition in partitions
                for offset in range(broker.bounds(topic, partition)[1])
            ],
            started=list(started),
            home={run_id: history.of(run_id).partition for run_id in [*started, *seen]},
            database=cluster.database,
            stored=await MemoryStore(cluster.database).load_runs(list(cluster.database.runs)),
            downstream=book.close(),
            in_memory={node.process.name: node.executor.runs_in_memory for node in executors},
            unstopped=unstopped,
            unhandled=list(unhandled),
            topics={
                topic: [broker.slice(topic, number, *broker.bounds(topic, number)) for number in partitions]
                for topic in TOPICS.all
                if topic != TOPICS.log
            },
        )

    def states(self) -> Iterator[tuple[str, State]]:
        """Every run of the log."""
        for history in self.partitions:
            yield from history.states.items()

    def history_of(self, run_id: str) -> PartitionHistory:
        """The partition of a run."""
        return self.partitions[self.home[run_id]]


Checker = Callable[[Ending], Iterator[str]]
