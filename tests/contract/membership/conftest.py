"""Membership has a third world: the real broker with the next generation of its protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.worlds import KafkaWorld, MemoryWorld, World


@pytest.fixture(
    params=[
        "memory",
        pytest.param("classic", marks=pytest.mark.integration),
        pytest.param("consumer", marks=pytest.mark.integration),
    ]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Give a Kafka with empty topics; its members speak one of the protocols."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    bootstrap, prefix = request.getfixturevalue("kafka_bootstrap"), request.getfixturevalue("topic_prefix")
    kafka = KafkaWorld(bootstrap, prefix, {"group.protocol": request.param})
    await kafka.setup()
    yield kafka
    await kafka.close()
