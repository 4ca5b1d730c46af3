"""Settings of the Kafka clients, and the file that RUNFOLD_KAFKA_CONFIG names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runfold.adapters.kafka.clients import Heard, make_consumer, make_producer
from runfold.adapters.kafka.config import KafkaConfig, MemberSettings, read_properties
from runfold.adapters.kafka.errors import KafkaConfigError


def write(folder: Path, text: str) -> Path:
    """Write a properties file."""
    path = folder / "kafka.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_settings_is_laid_over_ours(tmp_path: Path) -> None:
    """Comments and empty lines are skipped; a value may hold equals signs."""
    path = write(tmp_path, "# TLS\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b=\nsession.timeout.ms=20000\n")
    config = KafkaConfig.load("host:1", path)
    settings = config.member("group", MemberSettings())
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.password"] == "a=b="
    assert settings["session.timeout.ms"] == "20000"
    assert config.stated_session_s == 20.0
    assert settings["bootstrap.servers"] == "host:1"
    assert "a=b=" not in repr(config)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("acks", "line 1: expected key=value"),
        ("a=1\n\n=2", "line 3: expected key=value"),
        ("a=1\na=2", "line 2: a is set twice"),
    ],
)
def test_a_malformed_line_is_named_without_its_content(tmp_path: Path, text: str, told: str) -> None:
    """It could be half of a password."""
    path = write(tmp_path, text)
    with pytest.raises(KafkaConfigError, match=told) as error:
        read_properties(path)
    assert str(path) in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigError, match=r"RUNFOLD_KAFKA_CONFIG: .*nowhere"):
        KafkaConfig.load("host:1", tmp_path / "nowhere")


@pytest.mark.parametrize(
    "key",
    [
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "partitioner",
        "enable.auto.commit",
        "auto.offset.reset",
        "group.id",
        "partition.assignment.strategy",
        "transactional.id",
        "bootstrap.servers",
    ],
)
def test_a_safety_setting_cannot_be_overridden(key: str) -> None:
    """The error names it."""
    with pytest.raises(KafkaConfigError, match=key.replace(".", r"\.")):
        KafkaConfig("host:1", {key: "x"})


def test_the_next_generation_protocol_takes_its_sessions_from_the_broker() -> None:
    settings = KafkaConfig("host:1", {"group.protocol": "consumer"}).member("group", MemberSettings())
    assert "session.timeout.ms" not in settings
    assert "heartbeat.interval.ms" not in settings
    assert "partition.assignment.strategy" not in settings


@pytest.mark.parametrize("key", ["partition.assignment.strategy", "heartbeat.interval.ms"])
def test_what_the_broker_decides_cannot_be_set_with_the_next_generation_protocol(key: str) -> None:
    """The client would refuse it, in words that do not say why."""
    with pytest.raises(KafkaConfigError, match=rf"{key.replace('.', '[.]')}.*the broker sets it"):
        KafkaConfig("host:1", {"group.protocol": "consumer", key: "1"})


def test_a_session_that_is_said_beside_the_next_generation_protocol_is_not_handed_to_the_client() -> None:
    """It is what the operator says that the broker has; librdkafka refuses it."""
    config = KafkaConfig("host:1", {"group.protocol": "consumer", "session.timeout.ms": "45000"})
    assert config.stated_session_s == 45.0
    for settings in (config.member("group", MemberSettings()), config.reader(5), config.producer(1), config.admin()):
        assert "session.timeout.ms" not in settings
    make_consumer(config.member("group", MemberSettings()), Heard()).close()


def test_a_session_that_is_no_number_is_named() -> None:
    with pytest.raises(KafkaConfigError, match=r"session\.timeout\.ms is not a number of milliseconds: 'ten'"):
        _ = KafkaConfig("host:1", {"session.timeout.ms": "ten"}).stated_session_s


def test_a_setting_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(KafkaConfigError, match="no-such-setting"):
        make_producer(KafkaConfig("host:1", {"no-such-setting": "x"}).producer(1000), Heard())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_never_joins_a_group_needs_none_of_its_protocol(protocol: str) -> None:
    """What the operator says of members is refused by librdkafka, or makes a commit wait as long as a session."""
    config = KafkaConfig("localhost:9092", {"group.protocol": protocol, "session.timeout.ms": "45000"})
    settings = config.outsider("marks", 1.0)
    assert settings["group.protocol"] == "classic"
    assert settings["session.timeout.ms"] == 1000


def test_a_reader_is_answered_at_once_unless_it_gathers() -> None:
    """Who acts on a record must not wait for a second one."""
    config = KafkaConfig("host:1")
    assert config.reader(100)["fetch.min.bytes"] == 1
    gathering = config.reader(20, 65_536)
    assert (gathering["fetch.wait.max.ms"], gathering["fetch.min.bytes"]) == (20, 65_536)
