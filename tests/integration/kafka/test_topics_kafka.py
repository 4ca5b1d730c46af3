"""Making and checking topics on a real broker."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without `as`
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from runfold.adapters.kafka.admin import TopicProblem, check_topics, setup_topics
from runfold.adapters.kafka.config import KafkaConfig
from runfold.ports.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture
def config(kafka_bootstrap: str) -> KafkaConfig:
    """Give the settings for the broker."""
    return KafkaConfig(kafka_bootstrap)


async def alter(config: KafkaConfig, topic: str, key: str, value: str) -> None:
    """Change a topic's setting as an operator would, and wait until it is told."""
    admin = AdminClient(config.admin())
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)],
    )
    await asyncio.wrap_future(admin.incremental_alter_configs([resource])[resource])
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    async with asyncio.timeout(10):
        while (await asyncio.wrap_future(admin.describe_configs([asked])[asked]))[key].value != value:  # noqa: ASYNC110 - a broker sends no event
            await asyncio.sleep(0.05)


async def test_setup_makes_the_six_topics_once_even_when_run_twice_at_once(
    config: KafkaConfig, topic_prefix: str
) -> None:
    """Each topic is made by one of them, and a third run makes none."""
    topics = Topics(topic_prefix)
    made = await asyncio.gather(*(setup_topics(config, topics, 3, None) for _ in range(2)))
    assert sorted(made[0] + made[1]) == sorted(topics.all)
    assert await setup_topics(config, topics, 3, 1) == []
    assert await check_topics(config, topics, 3) == []


async def test_check_names_what_is_missing(config: KafkaConfig, topic_prefix: str) -> None:
    """With the command that mends it."""
    topics = Topics(topic_prefix)
    (problem,) = await check_topics(config, topics, 3)
    assert all(topic in problem for topic in topics.all)
    assert problem.endswith(" do not exist: run `runfold setup`")


async def test_another_partition_count_is_refused_before_anything_is_made(
    config: KafkaConfig, topic_prefix: str
) -> None:
    """Keys would move."""
    topics = Topics(topic_prefix)
    admin = AdminClient(config.admin())
    await asyncio.wrap_future(admin.create_topics([NewTopic(topics.log, num_partitions=2)])[topics.log])
    with pytest.raises(TopicProblem, match="2 partitions, 3 are configured"):
        await setup_topics(config, topics, 3, None)
    (missing,) = [problem for problem in await check_topics(config, topics, 3) if "not exist" in problem]
    assert missing.count(topic_prefix) == 5


async def test_settings_that_would_lose_data_are_refused_all_at_once(config: KafkaConfig, topic_prefix: str) -> None:
    """Each is named with its topic, its value and its mend."""
    topics = Topics(topic_prefix)
    await setup_topics(config, topics, 3, None)
    await alter(config, topics.log, "retention.ms", "604800000")
    await alter(config, topics.dead, "retention.bytes", "1000000")
    await alter(config, topics.requests, "retention.ms", "3600000")
    await alter(config, topics.approvals, "cleanup.policy", "compact")
    await alter(config, topics.control, "max.message.bytes", "1000")
    # Allowed: people may keep inputs longer, and notifications as they like.
    await alter(config, topics.notifications, "retention.ms", "1000")
    with pytest.raises(TopicProblem) as refused:
        await setup_topics(config, topics, 3, None)
    problems = await check_topics(config, topics, 3)
    assert sorted(problems) == sorted(refused.value.problems)
    told = "\n".join(sorted(problem.split(":")[0] for problem in problems))
    assert told == "\n".join(
        sorted(
            [
                f"{topics.log} has retention.ms=604800000",
                f"{topics.dead} has retention.bytes=1000000",
                f"{topics.requests} has retention.ms=3600000",
                f"{topics.approvals} has cleanup.policy=compact",
                f"{topics.control} has max.message.bytes=1000",
            ]
        )
    )
    assert all("set it to" in problem for problem in problems)
