"""Naming an installation of the crowd's app."""

from collections.abc import Callable
from pathlib import Path

from demo.installation import Installation
from demo.outside import URL_VARIABLE
from demo.world import World
from devstack import Stack
from tests.crowd.installing import APP, kafka_settings
from tests.crowd.names import SESSION_S

# Far shorter than in production, so that a killed executor's partitions move after 3 s.
SHORTEST_SESSION = kafka_settings(SESSION_S)
PARTITIONS = 4

Install = Callable[[World], Installation]


def crowd_installation(stack: Stack, folder: Path, world: World) -> Installation:
    """Name an installation of the crowd's app (tests/crowd/app.py), with short sessions."""
    return Installation.at(
        stack.environment(),
        folder,
        app=APP,
        partitions=PARTITIONS,
        kafka=SHORTEST_SESSION,
        extra={URL_VARIABLE: world.url},
    )
