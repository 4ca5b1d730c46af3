"""What the Kafka adapters raise beyond the ports' exceptions; one type per reaction of the caller."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from runfold.ports.log import LogUnavailable


class KafkaConfigError(Exception):
    """A setting is wrong: the person who runs the service must mend it. The message names it."""


class KafkaUnavailable(LogUnavailable):
    """No broker answered in time: wait and try again. The message says what the client heard last."""


class KafkaReadFailed(Exception):
    """Kafka refuses to be read (authorisation, a topic that was deleted): trying again alone does not help."""


class MembershipFailed(Exception):
    """The group cannot be joined or kept. The process is no member any more."""


def kafka_error(error: KafkaException) -> KafkaError:
    """Give what an exception of the client is about."""
    inner = error.args[0]
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(inner))  # noqa: SLF001 - librdkafka's own codes begin with an underscore


def is_fatal(error: KafkaError) -> bool:
    """Whether a client is unusable from now on. ``produce`` raises code ``_FATAL`` while ``fatal()`` is False: both."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - as above
