"""Making the six topics, and checking those that exist: data must not get lost by a setting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # re-exported without `as`
from confluent_kafka.cimpl import NewTopic

from runfold.adapters.kafka.clients import Heard, make_admin
from runfold.adapters.kafka.config import LOGGER, KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable, kafka_error
from runfold.adapters.threads import in_daemon_thread
from runfold.adapters.topics import MAX_COPY_RECORD
from runfold.ports.topics import Topics

_DAY_MS: Final = 86_400_000
_UNLIMITED: Final = -1
# Kafka's own default, said explicitly: a broker may have a lower one. Inputs of this size fit, with their headers,
# into the topics that hold copies of them.
_MAX_BYTES: Final = 1_048_588
_MAX_COPY_BYTES: Final = MAX_COPY_RECORD + 48_576
_TIMEOUT_S: Final = 30.0
_VISIBLE_S: Final = 0.1


class TopicProblem(Exception):
    """Topics exist that would lose data or move keys. Nothing was changed about them.

    Attributes:
        problems: Each with its mend.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a topic is made with, and the least that is accepted of one that exists (-1: unlimited)."""

    retention_ms: int
    min_retention_ms: int
    max_bytes: int = _MAX_BYTES

    def settings(self) -> dict[str, str]:
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(_UNLIMITED),
            "max.message.bytes": str(self.max_bytes),
        }


_INPUT: Final = _Plan(30 * _DAY_MS, 7 * _DAY_MS)
_FOR_EVER: Final = _Plan(_UNLIMITED, _UNLIMITED)


def _plans(topics: Topics) -> dict[str, _Plan]:
    return {
        topics.requests: _INPUT,
        topics.approvals: _INPUT,
        topics.control: _Plan(_INPUT.retention_ms, _INPUT.min_retention_ms, _MAX_COPY_BYTES),
        topics.log: _FOR_EVER,
        topics.notifications: _Plan(7 * _DAY_MS, 0),
        topics.dead: _Plan(_UNLIMITED, _UNLIMITED, _MAX_COPY_BYTES),
    }


async def setup_topics(
    config: KafkaConfig, topics: Topics, partitions: int, replication_factor: int | None
) -> list[str]:
    """Make the topics that are missing, check the others; safe to run twice, and twice at once.

    Args:
        config: How to reach Kafka.
        topics: Their names.
        partitions: Of each topic, fixed for life.
        replication_factor: None: the broker's default.

    Returns:
        The names of the topics that were made.

    Raises:
        TopicProblem: One exists with another partition count, or with a retention that would lose data; or the
            brokers refuse to make one.
        KafkaUnavailable: No broker answers.
    """
    return await asyncio.to_thread(_Topics(config, topics, partitions).setup, replication_factor)


async def check_topics(config: KafkaConfig, topics: Topics, partitions: int) -> list[str]:
    """Give what is wrong with the topics, each with its mend; [] if all is well.

    Raises:
        KafkaUnavailable: No broker answers.
    """
    return await in_daemon_thread(_Topics(config, topics, partitions).problems)


class _Topics:
    """The topics as the brokers have them. Blocking: used in a thread."""

    def __init__(self, config: KafkaConfig, topics: Topics, partitions: int) -> None:
        self._heard = Heard()
        self._admin: AdminClient = make_admin(config.admin(), self._heard)
        self._plans = _plans(topics)
        self._partitions = partitions

    def setup(self, replication_factor: int | None) -> list[str]:
        existing = self._partition_counts()
        missing = [topic for topic in self._plans if topic not in existing]
        # What exists is checked first: a half-made installation is worse than none.
        if problems := self._problems_of(existing):
            raise TopicProblem(problems)
        made = self._make(missing, replication_factor)
        # Those that somebody else has made meanwhile may differ.
        if problems := self._problems_when_visible():
            raise TopicProblem(problems)
        return made

    def problems(self) -> list[str]:
        existing = self._partition_counts()
        *others, last = [topic for topic in self._plans if topic not in existing] or [""]
        named = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        missing = [f"{named} not exist: run `runfold setup`"] if last else []
        return missing + self._problems_of(existing)

    def _problems_when_visible(self) -> list[str]:
        """Check all topics once every broker knows of them, which takes a moment after they were made."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            existing: dict[str, int] = {}
            try:
                existing = self._partition_counts()
                if len(existing) == len(self._plans):
                    return self._problems_of(existing)
            except KafkaUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                LOGGER.debug("topics are not visible yet: %s", error)
            if time.monotonic() > deadline:
                return [f"{topic} was made and is not visible" for topic in self._plans if topic not in existing]
            time.sleep(_VISIBLE_S)

    def _make(self, names: Sequence[str], replication_factor: int | None) -> list[str]:
        if not names:
            return []
        wanted = [
            NewTopic(
                name,
                num_partitions=self._partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                config=self._plans[name].settings(),
            )
            for name in names
        ]
        made, refused = [], []
        for name, future in self._admin.create_topics(wanted, request_timeout=_TIMEOUT_S).items():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                reason = kafka_error(error)
                if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    refused.append(f"{name} could not be made: {reason.str()}")
            else:
                made.append(name)
        if refused:
            raise TopicProblem(refused)
        return made

    def _partition_counts(self) -> dict[str, int]:
        """Partition counts of those that exist."""
        try:
            found = self._admin.list_topics(timeout=_TIMEOUT_S / 3).topics
        except KafkaException as error:
            message = f"Kafka does not answer: {self._heard.last or kafka_error(error).str()}"
            raise KafkaUnavailable(message) from error
        return {
            name: len(found[name].partitions) for name in self._plans if name in found and found[name].error is None
        }

    def _problems_of(self, existing: Mapping[str, int]) -> list[str]:
        problems = [
            f"{topic} has {count} partitions, {self._partitions} are configured: keys would move; "
            f"set RUNFOLD_PARTITIONS to {count}, or use another RUNFOLD_TOPIC_PREFIX"
            for topic, count in existing.items()
            if count != self._partitions
        ]
        for topic, settings in self._settings(list(existing)).items():
            problems += _judge(topic, self._plans[topic], settings)
        return problems

    def _settings(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        if not names:
            return {}
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        told: dict[str, Mapping[str, str]] = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=_TIMEOUT_S).items():
            try:
                entries = future.result(_TIMEOUT_S)
            except KafkaException as error:
                message = f"Kafka did not tell the settings of {resource.name}: {kafka_error(error).str()}"
                raise KafkaUnavailable(message) from error
            told[resource.name] = {key: str(entry.value) for key, entry in entries.items()}
        return told


def _judge(topic: str, plan: _Plan, settings: Mapping[str, str]) -> list[str]:
    """Name each setting that would lose data, with its mend."""
    rules: list[tuple[str, Callable[[str], bool], str, str]] = [
        (
            "cleanup.policy",
            lambda value: value == "delete",
            "records would be compacted away",
            "delete",
        ),
        (
            "retention.ms",
            lambda value: _enough(int(value), plan.min_retention_ms),
            "records would be deleted too early",
            str(plan.retention_ms),
        ),
        (
            "retention.bytes",
            lambda value: plan.min_retention_ms == 0 or int(value) == _UNLIMITED,
            "records would be deleted too early",
            str(_UNLIMITED),
        ),
        (
            "max.message.bytes",
            lambda value: int(value) >= plan.max_bytes,
            "records of ours would be refused",
            str(plan.max_bytes),
        ),
    ]
    return [
        f"{topic} has {key}={settings[key]}: {why}; set it to {mend} (kafka-configs --alter)"
        for key, accepts, why, mend in rules
        if key in settings and not accepts(settings[key])
    ]


def _enough(retention_ms: int, least_ms: int) -> bool:
    """Compare retentions, of which -1 is the longest."""
    return retention_ms == _UNLIMITED or (least_ms != _UNLIMITED and retention_ms >= least_ms)
