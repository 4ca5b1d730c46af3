"""Cases of docs/cases.md: a run of 10,000 steps."""

from __future__ import annotations

from dataclasses import dataclass

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory.store import MemoryDatabase, MemoryStore
from runfold.core.state import Status
from runfold.ports.store import Commit, PartitionRow
from runfold.testing import ScriptedModel
from tests.runtime.system import TOPICS, System
from tests.runtime.virtual import run_virtual

STEPS = 10_000
SNAPSHOT_EVERY = 100


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one snapshot of the run has cost.

    Attributes:
        step: The run's step.
        state: Bytes of its state.
        chunks: Bytes of the messages that were stored with it.
        messages: How many messages these are.
        stored: Bytes of all message chunks and all kept snapshots of the run afterwards.
        log: Bytes of the partition's log, values only.
    """

    step: int
    state: int
    chunks: int
    messages: int
    stored: int
    log: int


class _WeighingStore(MemoryStore):
    """Weighs what each commit adds."""

    def __init__(self, database: MemoryDatabase, seen: list[Snapshot], system: list[System]) -> None:
        super().__init__(database)
        self._weighed = database
        self._seen = seen
        self._system = system

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit, and weigh."""
        row = await super().commit(commit)
        for snapshot in commit.snapshots:
            chunks = [chunk for chunk in commit.chunks if chunk.run_id == snapshot.run_id]
            end = self._system[0].broker.bounds(TOPICS.log, 0)[1]
            self._seen.append(
                Snapshot(
                    step=self._weighed.runs[snapshot.run_id].step,
                    state=len(snapshot.state),
                    chunks=sum(len(chunk.data) for chunk in chunks),
                    messages=sum(chunk.count for chunk in chunks),
                    stored=0,
                    log=end,
                )
            )
        return row
