"""What a Kafka client says is logged once, not a hundred times a second."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from runfold.adapters.kafka.clients import REPEAT_S, Heard


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Give them."""
        return self.now


def down(tries: int) -> KafkaError:
    """Make what librdkafka reports while nobody listens."""
    text = f"b:1: Connect failed (after {tries}ms in state CONNECT, {tries} identical error(s) suppressed)"
    return KafkaError(KafkaError._TRANSPORT, text)


def test_the_same_failure_is_logged_once_in_ten_seconds_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock, told = Clock(), list[KafkaError]()
    heard = Heard(told.append, clock=clock)
    for tries in range(100):
        clock.now += 0.05
        heard(down(tries))
    heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert [record.message for record in caplog.records] == [
        "kafka client: b:1: Connect failed (after 0ms in state CONNECT, 0 identical error(s) suppressed)",
        "kafka client: 1/1 brokers are down",
    ]
    clock.now += REPEAT_S
    heard(down(100))
    assert caplog.records[-1].message == "kafka client: b:1: Connect failed (99 more times in the 15 s before)"
    assert len(told) == 102, "what reacts to an error hears every one"


def test_what_the_error_callback_says_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    heard.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "b:1: Connect failed")
    heard.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#producer-1", "a setting is odd")
    assert [record.message for record in caplog.records] == ["CONFWARN [rdkafka#producer-1] a setting is odd"]
