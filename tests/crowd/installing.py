"""An installation of the crowd's app, with short sessions, whose log says when each record was appended."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # re-exported without `as`

from demo.installation import Installation
from demo.outside import URL_VARIABLE
from demo.world import World
from devstack import Stack
from tests.crowd import ledger
from tests.crowd.names import SESSION_S

APP: Final = "tests.crowd.app:app"
_PATIENCE_S: Final = 30.0


def kafka_settings(session_s: float) -> str:
    """Give the lines of RUNFOLD_KAFKA_CONFIG for a session of so many seconds."""
    return f"session.timeout.ms={session_s * 1000:.0f}\nheartbeat.interval.ms={session_s * 1000 / 4:.0f}\n"


def set_up(
    stack: Stack,
    folder: Path,
    world: World,
    *,
    partitions: int = 4,
    session_s: float = SESSION_S,
) -> Installation:
    """Make an installation on a stack's servers; the caller removes it."""
    installation = Installation.at(
        stack.environment(),
        folder,
        app=APP,
        partitions=partitions,
        kafka=kafka_settings(session_s),
        extra={URL_VARIABLE: world.url},
    )
    installation.runfold("setup")
    stamp_by_broker(installation)
    ledger.create(installation)
    return installation


def stamp_by_broker(installation: Installation) -> None:
    """Let the broker stamp the log's records when it appends them: the checkers compare that with arrivals."""
    entry = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, f"{installation.topics}log", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": installation.bootstrap})
    for altered in admin.incremental_alter_configs([topic]).values():
        altered.result(_PATIENCE_S)
