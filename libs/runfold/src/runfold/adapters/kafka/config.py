"""Settings of the Kafka clients: ours, with those of ``RUNFOLD_KAFKA_CONFIG`` laid over them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runfold.adapters.kafka.errors import KafkaConfigError

Settings = dict[str, Any]


def _concerns_us(record: logging.LogRecord) -> bool:
    """Drop librdkafka's remarks that a producer makes no use of a consumer's settings: one file serves both."""
    message = record.getMessage()
    return "CONFWARN" not in message or "will be ignored by this" not in message


LOGGER: Final = logging.getLogger("runfold.kafka")
LOGGER.addFilter(_concerns_us)

_COMMON: Final[Mapping[str, Any]] = {
    "client.id": "runfold",
    "statistics.interval.ms": 0,
    "enable.metrics.push": False,
    "socket.keepalive.enable": True,
    # The default lets a client sleep for 10 s after a broker has come back.
    "reconnect.backoff.max.ms": 1000,
    # Half of it, by default 50 ms, is what a new client waits between the bootstrap server that names the brokers and
    # its first connection to one of them. The price: a dead broker is tried again after 20 ms at first, not 100.
    "reconnect.backoff.ms": 20,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",
    # How long an unknown topic is waited for before a record fails; by default 30 s.
    "topic.metadata.propagation.max.ms": 5000,
}
_READER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    # librdkafka's default, said because it matters: what a foreign producer's transaction has aborted is no input.
    "isolation.level": "read_committed",
    # By default a consumer whose queue is full fetches nothing for a second.
    "fetch.queue.backoff.ms": 20,
    "fetch.error.backoff.ms": 100,
}

# What may not be overridden, with the reason that the error gives.
_SAFETY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bootstrap.servers", "metadata.broker.list"), "RUNFOLD_KAFKA_BOOTSTRAP sets it"),
    **dict.fromkeys(("acks", "request.required.acks"), "an acknowledged record must survive a broker"),
    "enable.idempotence": "acknowledged offsets must be contiguous",
    "enable.gapless.guarantee": "acknowledged offsets must be contiguous",
    "transactional.id": "control records take offsets, so that acknowledgements would not be contiguous",
    **dict.fromkeys(
        ("message.timeout.ms", "delivery.timeout.ms", "retries", "message.send.max.retries"),
        "the producer retries without limit",
    ),
    **dict.fromkeys(("partitioner", "partitioner_cb"), "a run's partition is that of Java's default partitioner"),
    "message.max.bytes": "a record's size is checked before it is produced",
    **dict.fromkeys(
        ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store", "auto.commit.interval.ms"),
        "positions are kept in the log, never by the group",
    ),
    "auto.offset.reset": "a silent jump would lose the log",
    "allow.auto.create.topics": "topics are made by `runfold setup`",
    "isolation.level": "an input of an aborted transaction must have no effect",
    **dict.fromkeys(("group.id", "group.instance.id"), "Runfold names its groups"),
    "partition.assignment.strategy": "an owner keeps what does not move (cooperative-sticky)",
    "test.mock.num.brokers": "that is no Kafka",
}

SESSION: Final = "session.timeout.ms"
# With KIP-848 the broker decides about these, and librdkafka refuses them. The session may be said all the same, as
# what the broker is known to have: see sessions.py.
_THE_BROKERS: Final = ("partition.assignment.strategy", "heartbeat.interval.ms", "group.protocol.type")


def read_properties(path: Path) -> dict[str, str]:
    """Read a ``key=value`` file: a setting a line, ``#`` begins a comment line, spaces around both parts are cut.

    Raises:
        KafkaConfigError: It cannot be read, or a line is malformed or repeats a key; file and line are named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"RUNFOLD_KAFKA_CONFIG: {path} cannot be read: {error}"
        raise KafkaConfigError(message) from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key:
            # The line itself may be half of a password: it is not repeated.
            message = f"{path}, line {number}: expected key=value"
            raise KafkaConfigError(message)
        if key in found:
            message = f"{path}, line {number}: {key} is set twice"
            raise KafkaConfigError(message)
        found[key] = value
    return found


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Times of a group membership, in seconds.

    Attributes:
        session_s: Silence after which the group gives a member up.
        heartbeat_s: A member hears of a rebalance with its next heartbeat: what every hand-over waits for.
        notice_s: How long what goes to a joiner is kept before it is drained. librdkafka joins once a second at most,
            so who has just joined comes back for what was let go a second after it joined, and not before. Counted
            from there, a heartbeat has gone by until this member heard of it, and draining takes a moment.
        max_poll_s: Time between two polls after which a member gives itself up.
        listener_s: Bound of one call of the listener; above its own bound for draining, below ``max_poll_s``.
        stall_s: Time without a tick of the event loop after which the member leaves.
    """

    session_s: float = 10.0
    heartbeat_s: float = 0.3
    notice_s: float = 0.6
    max_poll_s: float = 60.0
    listener_s: float = 30.0
    stall_s: float = 5.0


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How clients reach Kafka.

    Attributes:
        bootstrap: ``host:port``, several with commas.
        extra: librdkafka's own settings (TLS, SASL, sessions), laid over ours.

    Raises:
        KafkaConfigError: ``extra`` overrides a setting that safety depends on.
    """

    bootstrap: str
    extra: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for key in self.extra:
            if key in _THE_BROKERS and self.next_generation:
                message = f"RUNFOLD_KAFKA_CONFIG: {key} may not be set: with group.protocol=consumer the broker sets it"
                raise KafkaConfigError(message)
            if (why := _SAFETY.get(key)) is not None:
                message = f"RUNFOLD_KAFKA_CONFIG: {key} may not be set: {why}"
                raise KafkaConfigError(message)

    @classmethod
    def load(cls, bootstrap: str, path: Path | None) -> KafkaConfig:
        """Read the file that RUNFOLD_KAFKA_CONFIG names, if any.

        Raises:
            KafkaConfigError: See ``read_properties``, and above.
        """
        return cls(bootstrap, {} if path is None else read_properties(path))

    @property
    def next_generation(self) -> bool:
        """Whether the operator chose KIP-848, whose sessions and assignor are the broker's affair."""
        return self.extra.get("group.protocol", "classic").lower() == "consumer"

    def admin(self) -> Settings:
        """Give the settings of an admin client."""
        return self._merge({})

    def producer(self, max_record: int) -> Settings:
        """Give the settings of a producer of records up to ``max_record`` bytes, Kafka's overhead not counted."""
        return self._merge({**_PRODUCER, "message.max.bytes": max_record + 65_536})

    def reader(self, fetch_wait_ms: int, fetch_min_bytes: int = 1) -> Settings:
        """Give the settings of a consumer that is plainly assigned; its group is a name that nobody else has.

        Args:
            fetch_wait_ms: How long a broker holds a fetch while there is too little. A newly assigned partition waits
                for the fetch that is pending (350 ms at librdkafka's default of 500).
            fetch_min_bytes: What is too little is less than this, of all partitions together.
        """
        return self._merge(
            {
                **_READER,
                "fetch.wait.max.ms": fetch_wait_ms,
                "fetch.min.bytes": fetch_min_bytes,
                "group.id": f"runfold-plain-{uuid.uuid4().hex}",
            }
        )

    def member(self, group: str, member: MemberSettings) -> Settings:
        """Give the settings of a member of a group."""
        ours: Settings = {**_READER, "group.id": group, "max.poll.interval.ms": _ms(member.max_poll_s)}
        if not self.next_generation:
            ours |= {
                "partition.assignment.strategy": "cooperative-sticky",
                SESSION: _ms(member.session_s),
                "heartbeat.interval.ms": _ms(member.heartbeat_s),
            }
        return self._merge(ours)

    def outsider(self, group: str, commit_s: float) -> Settings:
        """Give the settings of a consumer that never joins the group whose offsets it reads and commits.

        ``commit_s``: how long a commit waits for a coordinator; librdkafka takes the session's time-out for it.
        """
        # Laid over the operator's as well: what he says of protocol and session is about members.
        return self._merge({**_READER, "group.id": group}) | {"group.protocol": "classic", SESSION: _ms(commit_s)}

    @property
    def stated_session_s(self) -> float | None:
        """The session time-out that the operator said, in seconds; None if nothing was said.

        Raises:
            KafkaConfigError: It is not a number.
        """
        value = self.extra.get(SESSION)
        try:
            return None if value is None else int(value) / 1000
        except ValueError:
            message = f"RUNFOLD_KAFKA_CONFIG: {SESSION} is not a number of milliseconds: {value!r}"
            raise KafkaConfigError(message) from None

    def _merge(self, ours: Settings) -> Settings:
        theirs = {key: value for key, value in self.extra.items() if key != SESSION or not self.next_generation}
        return {**_COMMON, **ours, **theirs, "bootstrap.servers": self.bootstrap}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
