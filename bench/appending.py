"""The bare loop: what Kafka and Python can do at best, with nothing of Runfold but its producer."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import uvloop

from bench.world import World
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.log import KafkaLog
from runfold.ports.log import AppendFailed
from runfold.ports.topics import Topics

_RECORD: Final = b"x" * 300
_WARM_UP: Final = 20
_APPENDS_A_STEP: Final = 2


def bare_prefix(world: World) -> str:
    """Give the prefix of the topics that the bare loop appends to."""
    return f"{world.installation.topics}bare."


def bare_rate(world: World, runs: int, steps: int) -> float:
    """Give the steps per second of ``runs`` loops at once, two awaited appends a step, ``steps`` steps each."""
    return uvloop.run(_bare_rate(world, runs, steps))


async def _bare_rate(world: World, runs: int, steps: int) -> float:
    log = KafkaLog(KafkaConfig(world.bootstrap), Topics(bare_prefix(world)))
    await log.start()

    async def append(partition: int) -> None:
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_ack(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                acknowledged.set_exception(result)
            else:
                acknowledged.set_result(result)

        log.append(partition, None, b"", _RECORD, on_ack)
        await acknowledged

    async def loop(number: int, count: int) -> None:
        for _ in range(_APPENDS_A_STEP * count):
            await append(number % world.partitions)

    try:
        # A new producer's first records are slow.
        await asyncio.gather(*(loop(number, _WARM_UP) for number in range(_WARM_UP)))
        began = time.monotonic()
        await asyncio.gather(*(loop(number, steps) for number in range(runs)))
        return runs * steps / (time.monotonic() - began)
    finally:
        await log.close()
