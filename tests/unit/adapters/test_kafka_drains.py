"""Drain marks when Kafka does not answer."""

from __future__ import annotations

import asyncio

import pytest

from devstack.ports import free_ports
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.drains import KafkaDrains
from runfold.adapters.kafka.errors import KafkaConfigError
from runfold.ports.drains import DrainsUnavailable


async def test_a_question_that_fails_leaves_the_others_an_answer() -> None:
    """They wait for one client: each hears in time that there is no answer, whatever became of the one before."""
    drains = KafkaDrains(KafkaConfig(f"127.0.0.1:{free_ports(1)[0]}"), "group", "topic", timeout=0.1)
    async with asyncio.timeout(10):
        first = asyncio.create_task(drains.marks([0]))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(drains.mark([1]))
        for question in (first, second):
            with pytest.raises(DrainsUnavailable):
                await question
        await drains.close()


async def test_a_start_waits_for_nobody_and_tells_of_a_bad_setting() -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    drains = KafkaDrains(KafkaConfig(away), "group", "topic")
    async with asyncio.timeout(10):
        drains.start()
        await drains.close()
    with pytest.raises(KafkaConfigError, match="no-such-setting"):
        KafkaDrains(KafkaConfig(away, {"no-such-setting": "1"}), "group", "topic").start()
