"""The two worlds in which the contract of each Kafka port is tested."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.worlds import KafkaWorld, MemoryWorld, World


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Give a Kafka with empty topics."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    kafka = KafkaWorld(request.getfixturevalue("kafka_bootstrap"), request.getfixturevalue("topic_prefix"))
    await kafka.setup()
    yield kafka
    await kafka.close()
