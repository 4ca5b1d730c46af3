"""A Kafka of one test's own: topics under a prefix that nobody else has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.worlds import KafkaWorld


@pytest.fixture
async def world(kafka_bootstrap: str, topic_prefix: str) -> AsyncIterator[KafkaWorld]:
    """Give a real Kafka with empty topics."""
    kafka = KafkaWorld(kafka_bootstrap, topic_prefix)
    await kafka.setup()
    yield kafka
    await kafka.close()
