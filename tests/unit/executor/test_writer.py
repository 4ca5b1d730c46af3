"""The epoch's writer on the in-memory log: what proves that the epoch holds, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from runfold.adapters.memory.broker import MemoryBroker
from runfold.adapters.memory.clock import LoopClock
from runfold.adapters.memory.log import MemoryLog
from runfold.codec import log as log_codec
from runfold.core.events import Cause, InputSettled, LogRecordBody, PartitionClaimed, Settlement
from runfold.core.fence import HEADER
from runfold.ports.log import AppendFailed, LogRecord, LogUnavailable, LogUnrecoverable, OnAck, RecordTooLarge
from runfold.runtime.executor.writer import Encoded, EpochOver, EpochWriter
from runfold.testing.simulation.loop import run_virtual

CLAIM = PartitionClaimed(owner="o", revision="r", nonce="n", at=0)


class SlowLog(MemoryLog):
    """Reads wait until ``may_read`` is set; the next reading may fail."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.may_read = asyncio.Event()
        self.failure: Exception | None = None

    async def read(self, partition: int, start: int, end: int, max_records: int) -> list[LogRecord]:
        """Read, when it is allowed."""
        await self.may_read.wait()
        if self.failure is not None:
            raise self.failure
        return await super().read(partition, start, end, max_records)


@dataclass
class Desk:
    """A writer whose claim stands at 0, and the log that it shares with others."""

    broker: MemoryBroker
    log: SlowLog
    writer: EpochWriter

    def intrude(self, record: LogRecordBody) -> None:
        """Append somebody else's record."""
        head, value = log_codec.encode(record)
        self.broker.append(self.broker.topics.log, 0, None, value, ((HEADER, head),))


def settled(offset: int) -> InputSettled:
    """Give some record."""
    cause = Cause("runfold.requests", 0, offset)
    return InputSettled(epoch=0, at=0, cause=cause, outcome=Settlement.STALE)


def encoded(offset: int = 0) -> Encoded:
    """Give some record, encoded."""
    head, value = log_codec.encode(settled(offset))
    return (None, head, value)


@asynccontextmanager
async def at_a_desk() -> AsyncIterator[Desk]:
    """Give a writer; what it spawns ends with the block."""
    broker = MemoryBroker(1)
    log = SlowLog(broker)
    async with asyncio.TaskGroup() as group:
        desk = Desk(broker, log, EpochWriter(log, 0, 0, LoopClock(), 1000, group.create_task))
        desk.intrude(CLAIM)
        yield desk


def test_a_batch_is_acknowledged_with_its_last_record_and_dated_from_its_produce() -> None:
    """Three records, one waiting."""

    async def main() -> None:
        async with at_a_desk() as desk:
            await asyncio.sleep(7)
            assert await desk.writer.append([encoded(1), encoded(2), encoded(3)]) == 7
            assert desk.broker.bounds(desk.broker.topics.log, 0) == (0, 4)

    run_virtual(main())


def test_acknowledgements_that_come_while_a_gap_is_read_wait_for_its_judgement() -> None:
    """None of the appends behind a gap is acknowledged before the gap is known to hold no claim."""

    async def main() -> None:
        async with at_a_desk() as desk:
            desk.intrude(settled(7))
            appends = [asyncio.ensure_future(desk.writer.append([encoded(n)])) for n in range(3)]
            await asyncio.sleep(1)
            assert not any(append.done() for append in appends)
            desk.log.may_read.set()
            await asyncio.gather(*appends)
            await desk.writer.append([encoded(4)])
            assert not desk.writer.over.done()

    run_virtual(main())


def test_a_second_gap_among_the_waiting_acknowledgements_is_read_too() -> None:
    """A void record behind the first append, a claim behind the second: the second is never acknowledged."""

    async def main() -> None:
        async with at_a_desk() as desk:
            desk.intrude(settled(7))
            first = asyncio.ensure_future(desk.writer.append([encoded(1)]))
            await asyncio.sleep(0.1)
            desk.intrude(CLAIM)
            second = asyncio.ensure_future(desk.writer.append([encoded(2)]))
            await asyncio.sleep(0.1)
            desk.log.may_read.set()
            await first
            with pytest.raises(EpochOver, match="another claim"):
                await second

    run_virtual(main())


def test_a_claim_in_a_gap_ends_the_epoch() -> None:
    """For every append that waits, and for every later one."""

    async def main() -> None:
        async with at_a_desk() as desk:
            desk.log.may_read.set()
            desk.intrude(CLAIM)
            appends = [asyncio.ensure_future(desk.writer.append([encoded(n)])) for n in range(3)]
            for append in appends:
                with pytest.raises(EpochOver, match="another claim"):
                    await append
            with pytest.raises(EpochOver):
                await desk.writer.append([encoded(4)])
            assert desk.broker.bounds(desk.broker.topics.log, 0) == (0, 5)

    run_virtual(main())


@pytest.mark.parametrize("failure", [LogUnavailable("away"), LogUnrecoverable("gone")])
def test_a_gap_that_cannot_be_read_proves_nothing(failure: Exception) -> None:
    """The epoch is over, or the process, whatever stands there."""

    async def main() -> None:
        async with at_a_desk() as desk:
            desk.log.may_read.set()
            desk.log.failure = failure
            desk.intrude(settled(7))
            with pytest.raises(EpochOver):
                await desk.writer.append([encoded()])
            assert desk.writer.over.done()

    run_virtual(main())


def test_an_acknowledgement_below_the_expected_offset_is_a_truncated_log() -> None:
    """Not an epoch that is over: nothing may be built on it."""

    async def main() -> None:
        async with at_a_desk() as desk:
            await desk.writer.append([encoded(1), encoded(2)])
            desk.broker.truncate(desk.broker.topics.log, 0, 2)
            with pytest.raises(EpochOver):
                await desk.writer.append([encoded(3)])
            assert isinstance(desk.writer.over.exception(), LogUnrecoverable)

    run_virtual(main())


def test_a_failed_append_ends_the_epoch_and_later_acknowledgements_change_nothing() -> None:
    """What was pipelined behind it is of unknown outcome, even if it is acknowledged."""

    async def main() -> None:
        async with at_a_desk() as desk:
            appends = [asyncio.ensure_future(desk.writer.append([encoded(n)])) for n in range(2)]
            await asyncio.sleep(0)
            desk.writer._acked(0, AppendFailed("lost"))
            for append in appends:
                with pytest.raises(EpochOver, match="lost"):
                    await append
            await asyncio.sleep(1)
            assert "lost" in desk.writer.over.result()

    run_virtual(main())


def test_a_record_above_the_limit_is_refused_before_it_is_produced() -> None:
    """With its size and the limit; the epoch goes on."""

    async def main() -> None:
        async with at_a_desk() as desk:
            with pytest.raises(RecordTooLarge, match="1000"):
                desk.writer.check_size((None, b"h", b"x" * 1000))
            desk.writer.check_size((None, b"h", b"x" * 990))
            assert not desk.writer.over.done()

    run_virtual(main())


async def test_an_acknowledgement_out_of_its_turn_ends_the_epoch() -> None:
    """One that was never answered must not be taken for durable by the answer of the next."""
    answers: list[OnAck] = []

    class Deaf(MemoryLog):
        def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
            del partition, key, head, value
            answers.append(on_ack)

    log = Deaf(MemoryBroker(1))
    writer = EpochWriter(log, 0, 0, LoopClock(), 1 << 20, asyncio.ensure_future)
    appends = [asyncio.ensure_future(writer.append([("a", b"head", b"value")])) for _ in range(2)]
    await asyncio.sleep(0)
    answers[1](1)
    for append in appends:
        with pytest.raises(EpochOver, match="out of its turn"):
            await append
