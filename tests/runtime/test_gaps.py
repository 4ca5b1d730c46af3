"""Offsets of an input topic at which there is no input: markers of foreign transactions, and what these aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.inputs import MemoryInputReader, MemoryInputs
from runfold.codec import inputs as codec_inputs
from runfold.core.state import Status
from runfold.ports.inputs import InputRecord
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import model_app

NO_INPUT = b"no input"


class _Reader(MemoryInputReader):
    """Passes over what is no input, as a consumer that reads what is committed passes over a transaction's marker."""

    async def next(self, max_records: int) -> list[InputRecord]:
        """Wait for records."""
        while not (records := [r for r in await super().next(max_records) if r.value != NO_INPUT]):
            continue
        return records


class InputsWithHoles(MemoryInputs):
    """Inputs of which ``mark`` makes some to be none."""

    async def open(self, partition: int, next_offsets: Mapping[str, int]) -> _Reader:
        """Open a reader that passes over."""
        starts = {topic: next_offsets.get(topic, 0) for topic in self._broker.topics.inputs}
        return _Reader(self._broker, partition, starts)


def mark(broker: MemoryBroker, count: int = 1) -> None:
    """Append markers to ``requests``."""
    for _ in range(count):
        broker.append(TOPICS.requests, 0, b"r1", NO_INPUT)


def test_inputs_that_retention_deleted_in_two_strides_are_all_said_to_be_lost() -> None:
    """Nothing is read between them: the second stride must not hide the first, which would be called no input."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            process = await cluster.start_executor(model_app("done"))
            await cluster.until(lambda: process.executor.ready)
            await asyncio.sleep(1)
            value = codec_inputs.encode_start("lost", "a", "go")
            for end in (1, 2):
                cluster.broker.append(TOPICS.requests, 0, b"lost", value)
                cluster.broker.delete_before(TOPICS.requests, 0, end)
                await asyncio.sleep(1)
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            said = [(s.cause.offset, s.outcome, s.reason) for s in cluster.records("r1")[1]]
            assert said == [(0, "dead", "deleted"), (1, "dead", "deleted")]
            cluster.broker.append(TOPICS.requests, 0, b"lost", value)
            cluster.broker.delete_before(TOPICS.requests, 0, 4)
            await cluster.start("r2", "a")
            await cluster.ended("r2")
            said = [(s.cause.offset, s.outcome, s.reason) for s in cluster.records("r1")[1]]
            assert said[2:] == [(3, "dead", "deleted")]  # what was given before is nobody's loss

    run_virtual(main())


def test_the_position_passes_offsets_that_are_no_input() -> None:
    """One record in the log for each, so that compactor and later owners pass them too; no other input is touched."""

    async def main() -> None:
        async with Cluster.running(partitions=1, inputs=InputsWithHoles) as cluster:
            mark(cluster.broker, 2)
            await cluster.start("r1", "a")
            mark(cluster.broker, 700)
            cancelled = await cluster.request("r9", codec_inputs.encode_cancel("r9", "enough", "ops"))
            first = await cluster.start_executor(model_app("done"))

            def position() -> tuple[int, set[int]] | None:
                row = cluster.database.partitions.get(0)
                found = None if row is None else row.positions.of(TOPICS.requests)
                return None if found is None else (found.next, found.above)

            await cluster.until(lambda: position() == (cancelled + 1, set()))
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            settled = [(s.cause.offset, s.outcome, s.reason) for s in cluster.records("r1")[1]]
            passed = [0, 1, *range(3, cancelled)]
            assert settled[:-1] == [(offset, "stale", "no_input") for offset in passed]
            assert settled[-1] == (cancelled, "dead", "unknown_run")

            await first.stop()
            mark(cluster.broker)
            await cluster.start_executor(model_app("done"))
            last = await cluster.start("r2", "a")
            await cluster.until(lambda: position() == (last + 1, set()))
            assert len(cluster.records("r1")[1]) == len(settled) + 1

    run_virtual(main())
