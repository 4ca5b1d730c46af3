"""On a real Kafka: the client applies the rule of validity, and hears what became of an input."""

import asyncio

import pytest

from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.log import KafkaLog
from runfold.client import Client, Settled
from runfold.codec.log import encode, key_of
from runfold.core.events import Cause, LogRecordBody, PartitionClaimed, Settlement
from runfold.core.partitioning import partition_of
from runfold.ports.log import AppendFailed
from runfold.ports.topics import Topics
from tests.integration.cli.conftest import PARTITIONS, Commands
from tests.unit.client.world import RUN, asked, completed, settled, started

pytestmark = pytest.mark.integration


class Writer:
    """Writes log records, valid or not, as executors do."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log

    async def __call__(self, record: LogRecordBody) -> int:
        """Append one; gives its offset."""
        acknowledged: asyncio.Future[int | AppendFailed] = asyncio.get_running_loop().create_future()
        head, value = encode(record)
        self._log.append(partition_of(RUN, PARTITIONS), key_of(record), head, value, acknowledged.set_result)
        outcome = await acknowledged
        assert isinstance(outcome, int), outcome
        return outcome

    async def claim(self) -> int:
        """Append a claim; gives its epoch."""
        return await self(PartitionClaimed(owner="x", revision="r1", nonce="n", at=1))


def test_events_and_settlements(runfold: Commands, installation: dict[str, str]) -> None:
    runfold("setup")

    async def scenario() -> None:
        config = KafkaConfig(installation["RUNFOLD_KAFKA_BOOTSTRAP"])
        log = KafkaLog(config, Topics(installation["RUNFOLD_TOPIC_PREFIX"]))
        write = Writer(log)
        async with Client.connect() as client:
            sent = await client.start("research", {}, run_id=RUN)
            old = await write.claim()
            cause = Cause(sent.published.topic, sent.published.partition, sent.published.offset)
            await write(started(old, cause=cause))
            assert await client.settled(sent) == Settled("accepted", event="run_started", seq=0)
            await write(asked(old, seq=2))
            sent = await client.cancel(RUN, reason="x")
            new = await write.claim()
            await write(settled(old, sent.published, Settlement.DEAD, "unknown_run"))
            await write(asked(old))
            await write(asked(new))
            await write(settled(new, sent.published, Settlement.DUPLICATE))
            assert await client.settled(sent) == Settled("duplicate")
            assert await client.settled(await client.cancel(RUN, reason="x"), timeout_s=0.1) is None
            await write(completed(new, 2))
            events = [event async for event in client.events(RUN)]
            assert [(event["seq"], event["epoch"]) for event in events] == [(0, old), (1, new), (2, new)]
            assert [event["seq"] async for event in client.events(RUN, follow=True)] == [0, 1, 2]
            assert await client.result(RUN) == "done"
        await log.close()

    asyncio.run(scenario())
