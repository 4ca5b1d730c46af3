"""Reading from a real broker: back-pressure, and brokers that do not answer."""

from __future__ import annotations

import asyncio
import socket

import pytest

from runfold.adapters.kafka import streams
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable
from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.producer import AckedProducer
from runfold.ports.topics import Topics
from tests.contract.worlds import Acks, KafkaWorld

pytestmark = pytest.mark.integration


async def test_a_reader_that_does_not_read_is_paused_and_holds_up_nobody(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffer stays bounded, another partition's records arrive, and later it gets everything, once, in order."""
    monkeypatch.setattr(streams, "_FULL_RECORDS", 4000)
    inputs, publisher = KafkaInputs(world.config, world.topics), await world.publisher()
    slow, quick = await inputs.open(0, {}), await inputs.open(1, {})
    total = 12_000
    for _ in range(3):
        await asyncio.gather(
            *(publisher.publish(world.topics.requests, None, b"x" * 100, partition=0) for _ in range(total // 3))
        )
    for number in range(20):
        await publisher.publish(world.topics.requests, None, b"%d" % number, partition=1)
        async with asyncio.timeout(30):
            assert [record.value for record in await quick.next(10)] == [b"%d" % number]
    stream = slow._open[world.topics.requests]
    assert 4000 <= stream.came[0] <= 6000
    offsets: list[int] = []
    async with asyncio.timeout(60):
        while len(offsets) < total:
            offsets += [record.offset for record in await slow.next(700)]
    assert offsets == list(range(total))
    await inputs.close()


async def test_a_cold_start_says_when_no_broker_answers(topic_prefix: str) -> None:
    """Instead of retrying without limit."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        config = KafkaConfig(f"127.0.0.1:{unused.getsockname()[1]}")
        producer = AckedProducer(config, 1000)
        with pytest.raises(KafkaUnavailable, match="does not answer"):
            await producer.start("x", timeout=1.0)
        log = KafkaLog(config, Topics(topic_prefix))
        log._offsets._timeout = 1.0
        with pytest.raises(KafkaUnavailable):
            await log.bounds(0)
        await producer.close(0.1)
        await log.close()


async def test_closing_reports_what_is_in_flight_as_unknown(topic_prefix: str) -> None:
    """A process that ends does not wait for ever for a broker that is away."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        log = KafkaLog(KafkaConfig(f"127.0.0.1:{unused.getsockname()[1]}"), Topics(topic_prefix))
        acks = Acks()
        for _ in range(3):
            log.append(0, "run-1", b"", b"x", acks)
        await asyncio.sleep(0)  # handed over at the end of this round of the loop
        await log._producer.close(0.2)
        assert [str(outcome) for outcome in acks.told] == [
            f"{topic_prefix}log[0]: the producer was closed before the acknowledgement came"
        ] * 3
        log.append(0, "run-1", b"", b"x", acks)
        assert len(acks.told) == 3
        await log.close()
        assert [str(outcome) for outcome in await acks.wait(4)][3:] == [f"{topic_prefix}log[0]: the producer is closed"]
