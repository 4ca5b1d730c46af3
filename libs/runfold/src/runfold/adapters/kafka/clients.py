"""Making clients: wrong settings become an error that names them, librdkafka's own log lines go to ``logging``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from runfold.adapters.kafka.config import LOGGER, Settings
from runfold.adapters.kafka.errors import KafkaConfigError, kafka_error


class Heard:
    """What a client complained about last; a wrong password is heard here only, no call ever raises it."""

    def __init__(self, on_error: Callable[[KafkaError], None] | None = None) -> None:
        self._on_error = on_error
        self.last: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Serve as ``error_cb``."""
        self.last = error.str()
        LOGGER.warning("kafka client: %s", error.str())
        if self._on_error is not None:
            self._on_error(error)

    def __str__(self) -> str:
        return self.last or "no answer in time"


@contextlib.contextmanager
def _naming_bad_settings() -> Any:  # noqa: ANN401 - a generator-based context manager
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        what = kafka_error(error).str() if isinstance(error, KafkaException) else str(error)
        message = f"RUNFOLD_KAFKA_CONFIG or RUNFOLD_KAFKA_BOOTSTRAP: {what}"
        raise KafkaConfigError(message) from error


def make_producer(settings: Settings, heard: Heard) -> Producer:
    """Make a producer.

    Raises:
        KafkaConfigError: librdkafka refuses a setting.
    """
    with _naming_bad_settings():
        return Producer({**settings, "error_cb": heard}, logger=LOGGER)


def make_consumer(settings: Settings, heard: Heard) -> Consumer:
    """Make a consumer. Only one thread may use it.

    ``incremental_assign`` from a second thread did not return while the first polled (2.16.1; seen in two tries of
    two, cause not isolated).

    Raises:
        KafkaConfigError: librdkafka refuses a setting.
    """
    with _naming_bad_settings():
        return Consumer({**settings, "error_cb": heard}, logger=LOGGER)


def make_admin(settings: Settings, heard: Heard) -> AdminClient:
    """Make an admin client; keep it referenced, or its futures never resolve.

    Raises:
        KafkaConfigError: librdkafka refuses a setting.
    """
    with _naming_bad_settings():
        whole: Settings = {**settings, "error_cb": heard}
        return AdminClient(whole, logger=LOGGER)
