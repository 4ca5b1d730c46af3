"""Questions to the brokers by an admin client, asked again for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from runfold.adapters.kafka.clients import Heard, make_admin
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.errors import KafkaUnavailable, kafka_error

T = TypeVar("T")

_AGAIN_S: Final = 0.1


class Questions:
    """Asks, and asks again what may be answered later. Safe to share.

    A client does not look for a leader or a coordinator again: after a broker has come back it would ask the wrong one
    for ever. So one that failed is not used again. Whoever still waits for its answer holds it: the futures of a client
    that nobody holds never resolve.

    Args:
        config: How to reach Kafka.
        timeout: Seconds within which a question is asked again.
        passing: Codes of errors after which it is; None: after any.
    """

    def __init__(self, config: KafkaConfig, timeout: float, passing: Collection[int] | None = None) -> None:
        self._config = config
        self._timeout = timeout
        self._passing = passing
        self._heard = Heard()
        self._admin: AdminClient | None = None

    async def ask(self, question: Callable[[AdminClient], Awaitable[T]], what: str) -> T:
        """Give the answer to a question, which raises KafkaException for want of one.

        Args:
            question: Asks a client; with a time-out, since none is set here.
            what: Follows "Kafka did not tell" in the error.

        Raises:
            KafkaUnavailable: No answer in time, or a refusal.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            client = self._client()
            try:
                return await question(client)
            except KafkaException as error:
                reason = kafka_error(error)
                if self._admin is client:
                    self._admin = None
                is_passing = self._passing is None or reason.code() in self._passing
                if not is_passing or loop.time() > deadline:
                    message = f"Kafka did not tell {what}: {reason.str()} (last heard: {self._heard})"
                    raise KafkaUnavailable(message) from error
            await asyncio.sleep(_AGAIN_S)

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = make_admin(self._config.admin(), self._heard)
        return self._admin
