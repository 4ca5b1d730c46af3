"""What one round of the event loop appends is handed over together: each is answered, none by another's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.producer import Delivery, Headers, NotProduced
from runfold.adapters.system import SystemClock
from runfold.ports.log import AppendFailed
from runfold.ports.topics import Topics
from runfold.runtime.executor.writer import EpochOver, EpochWriter

REFUSALS = [NotProduced(KafkaError(KafkaError._QUEUE_FULL)), RuntimeError("can't start new thread")]


class Line:
    """An ``AckedProducer`` that refuses some values, in the ways in which one may."""

    def __init__(self, refused: bytes, error: Exception) -> None:
        self.given: list[tuple[int, bytes | None]] = []
        self._refused = refused
        self._error = error
        self._closed = False

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: Callable[[Delivery], None],
    ) -> None:
        """Take it, or not."""
        del topic, key, headers
        if self._closed or value == self._refused:
            raise self._error
        self.given.append((partition, value))
        asyncio.get_running_loop().call_soon(on_delivery, (partition, len(self.given)))

    async def close(self) -> None:
        """Take nothing more."""
        self._closed = True


def log_on(line: Line) -> KafkaLog:
    """Give a log that hands over to this line."""
    log = KafkaLog(KafkaConfig("127.0.0.1:1"), Topics("x"))
    log._producer = line  # type: ignore[assignment]
    return log


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("refused", [b"0", b"1", b"2"])
async def test_every_append_of_a_round_is_answered_whatever_one_of_them_meets(refused: bytes, error: Exception) -> None:
    """A new client that cannot be made (no thread, no CA file) must not swallow what was appended beside."""
    line = Line(refused, error)
    log = log_on(line)
    heard: dict[bytes, int | AppendFailed] = {}
    for value in (b"0", b"1", b"2"):
        log.append(0, "a", b"h", value, lambda result, value=value: heard.update({value: result}))  # type: ignore[misc]
        assert line.given == []
    await asyncio.sleep(0.01)
    assert set(heard) == {b"0", b"1", b"2"}
    assert [value for value, result in heard.items() if isinstance(result, AppendFailed)] == [refused]
    await log.close()


async def test_what_one_round_of_the_loop_appends_is_handed_over_together() -> None:
    """One by one, between other work, each would be a request of its own; the order is that of the appends."""
    line = Line(b"", REFUSALS[0])
    log = log_on(line)
    heard: list[int | AppendFailed] = []
    for number in range(5):
        log.append(number % 2, "run-1", b"", b"%d" % number, heard.append)
        assert line.given == []
    await asyncio.sleep(0)
    assert line.given == [(number % 2, b"%d" % number) for number in range(5)]
    log.append(0, "run-1", b"", b"5", heard.append)
    await asyncio.sleep(0)
    assert line.given[5:] == [(0, b"5")]
    await log.close()


async def test_an_append_that_is_not_handed_over_is_never_taken_for_acknowledged() -> None:
    """Nothing acts before its own request is durable: the epoch is over, and the next append finds it so."""
    log = log_on(Line(b"lost", RuntimeError("can't start new thread")))
    writer = EpochWriter(log, 0, 0, SystemClock(), 1 << 20, asyncio.ensure_future)
    with pytest.raises(EpochOver, match="can't start new thread"):
        await writer.append([("a", b"head", b"lost")])
    with pytest.raises(EpochOver):
        await writer.append([("b", b"head", b"durable")])
    await log.close()


async def test_closing_hands_over_first_and_what_comes_later_fails() -> None:
    """Once each."""
    line = Line(b"", REFUSALS[0])
    log = log_on(line)
    heard: list[int | AppendFailed] = []
    log.append(0, "a", b"h", b"0", heard.append)
    await log.close()
    log.append(0, "a", b"h", b"1", heard.append)
    await asyncio.sleep(0.01)
    assert line.given == [(0, b"0")]
    assert heard[0] == 1
    assert [type(result) for result in heard] == [int, AppendFailed]
