"""Naming an installation of the crowd's app."""

import os
from collections.abc import Callable
from pathlib import Path

from demo.installation import ROOT, Installation
from demo.outside import URL_VARIABLE
from demo.world import World
from devstack import Stack

# Far shorter than in production, so that a killed executor's partitions move after 3 s.
SHORTEST_SESSION = "session.timeout.ms=3000\nheartbeat.interval.ms=700\n"
PARTITIONS = 4
HERE = Path(__file__).parent

Install = Callable[[World], Installation]


def crowd_installation(stack: Stack, folder: Path, world: World) -> Installation:
    """Name an installation of the crowd's app (crowd_app.py), with short sessions."""
    paths = os.pathsep.join(map(str, (HERE, ROOT, ROOT / "tools")))
    return Installation.at(
        stack.environment(),
        folder,
        app="crowd_app:app",
        partitions=PARTITIONS,
        kafka=SHORTEST_SESSION,
        extra={URL_VARIABLE: world.url, "PYTHONPATH": paths},
    )
