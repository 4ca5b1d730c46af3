"""Making clients: wrong settings become an error that names them, what a client says goes to ``logging`` once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from runfold.adapters.kafka.config import LOGGER, Settings
from runfold.adapters.kafka.errors import KafkaConfigError, kafka_error

REPEAT_S = 10.0
CLOSE_S = 5.0
"""How long a client may take to close: librdkafka was seen not to come back from it after a broker's restart."""
# How long a connection had been tried for, and how many errors librdkafka had kept back: each time another number.
_VARYING = re.compile(r" \(after \d+ms in state .*\)")
# librdkafka logs these and hands them to ``error_cb`` as well.
_SAID_TWICE = frozenset({"FAIL", "ERROR"})


@dataclass(slots=True)
class _Said:
    """When a message was logged last, and how often it was kept back since."""

    at: float
    kept_back: int = 0


class Heard:
    """What a client says: its errors and its log lines, each message at most once in ``REPEAT_S`` seconds.

    A wrong password is heard here only, no call ever raises it. Only the thread that polls the client calls it.

    Args:
        on_error: Told of every error, repeated or not.
        clock: Monotonic seconds.
    """

    def __init__(
        self, on_error: Callable[[KafkaError], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_error = on_error
        self._clock = clock
        self._said: dict[str, _Said] = {}
        self.last: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Serve as ``error_cb``."""
        self.last = error.str()
        self._say(logging.WARNING, f"kafka client: {error.str()}")
        if self._on_error is not None:
            self._on_error(error)

    def log(self, level: int, form: str, *values: str) -> None:
        """Serve as ``logger``: the first value is librdkafka's facility, the last one its text."""
        if values and values[0] in _SAID_TWICE:
            return
        self._say(level, form % values if values else form)

    def __str__(self) -> str:
        return self.last or "no answer in time"

    def _say(self, level: int, text: str) -> None:
        now, what = self._clock(), _VARYING.sub("", text)
        said = self._said.get(what)
        if said is not None and now - said.at < REPEAT_S:
            said.kept_back += 1
            return
        self._said = {what: said for what, said in self._said.items() if said.kept_back or now - said.at < REPEAT_S}
        self._said[what] = _Said(now)
        if said is not None and said.kept_back:
            text = f"{what} ({said.kept_back} more times in the {now - said.at:.0f} s before)"
        LOGGER.log(level, "%s", text)


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
        return Producer({**settings, "error_cb": heard}, logger=heard)


def make_consumer(settings: Settings, heard: Heard) -> Consumer:
    """Make a consumer. Only one thread may use it.

    ``incremental_assign`` from a second thread did not return while the first polled (2.16.1; seen in two tries of
    two, cause not isolated).

    Raises:
        KafkaConfigError: librdkafka refuses a setting.
    """
    with _naming_bad_settings():
        return Consumer({**settings, "error_cb": heard}, logger=heard)


def make_admin(settings: Settings, heard: Heard) -> AdminClient:
    """Make an admin client; keep it referenced, or its futures never resolve.

    Raises:
        KafkaConfigError: librdkafka refuses a setting.
    """
    with _naming_bad_settings():
        whole: Settings = {**settings, "error_cb": heard}
        return AdminClient(whole, logger=heard)


async def join(thread: threading.Thread) -> None:
    """Wait for the end of a client's thread, but not for ever: who waited on would be killed."""
    await asyncio.to_thread(thread.join, CLOSE_S)
    if thread.is_alive():
        LOGGER.warning("%s: the client does not close within %g s; it is left behind", thread.name, CLOSE_S)
