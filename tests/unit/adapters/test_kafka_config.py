"""Settings of the Kafka clients, and the file that RUNFOLD_KAFKA_CONFIG names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runfold.adapters.kafka.clients import Heard, make_producer
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
    assert config.session_s(MemberSettings()) == 20.0
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
    assert "partition.assignment.strategy" not in settings


def test_a_setting_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(KafkaConfigError, match="no-such-setting"):
        make_producer(KafkaConfig("host:1", {"no-such-setting": "x"}).producer(1000), Heard())
