"""How long the group waits for a silent member: what the freshness of an acknowledgement is half of.

With the classic protocol a member says so itself. With KIP-848 the group's coordinator decides, by a setting of the
group or else of the brokers, so it is asked.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # re-exported without `as`

from runfold.adapters.kafka.clients import Heard, make_admin
from runfold.adapters.kafka.config import SESSION, KafkaConfig, MemberSettings
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaUnavailable, kafka_error
from runfold.adapters.threads import in_daemon_thread

_SETTING: Final = "consumer.session.timeout.ms"
_TIMEOUT_S: Final = 10.0
_REFUSALS: Final = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_REQUEST,
    KafkaError.UNSUPPORTED_VERSION,
)


async def session_s(config: KafkaConfig, group: str, member: MemberSettings) -> float:
    """Give the session time-out in force, in seconds.

    Raises:
        KafkaConfigError: The broker does not tell it and the operator has not said it, or has said another one.
        KafkaUnavailable: No broker answers.
    """
    said = config.stated_session_s
    if not config.next_generation:
        return member.session_s if said is None else said
    told = await in_daemon_thread(partial(_ask, config, group))
    known = said if told is None else told
    if known is None:
        raise KafkaConfigError(
            f"RUNFOLD_KAFKA_CONFIG: with group.protocol=consumer the broker sets the session time-out, and it does not "
            f"tell {_SETTING} of group {group}: allow DESCRIBE_CONFIGS on the group, or say {SESSION} as it is there"
        )
    if said is not None and said != known:
        raise KafkaConfigError(
            f"RUNFOLD_KAFKA_CONFIG: {SESSION} is {said * 1000:.0f}, but with group.protocol=consumer the broker sets "
            f"it, to {known * 1000:.0f}: leave it out, or alter {_SETTING} of group {group} (kafka-configs --alter)"
        )
    return known


def _ask(config: KafkaConfig, group: str) -> float | None:
    """Ask the brokers; None: they do not tell, and will not next time either."""
    heard = Heard()
    admin: AdminClient = make_admin(config.admin(), heard)
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    try:
        found = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(2 * _TIMEOUT_S)
    except KafkaException as error:
        reason = kafka_error(error)
        if reason.code() in _REFUSALS:
            return None
        raise KafkaUnavailable(f"Kafka did not tell {_SETTING} of {group}: {reason.str()} ({heard})") from error
    entry = found.get(_SETTING)
    return None if entry is None or entry.value is None else int(entry.value) / 1000
