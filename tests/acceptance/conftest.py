"""Installations of the acceptance tests: real services on the session's servers, removed afterwards."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.installation import ROOT, Installation
from demo.outside import URL_VARIABLE
from demo.world import World
from devstack import Stack

# Far shorter than in production, so that a killed executor's partitions move after 3 s.
SHORTEST_SESSION = "session.timeout.ms=3000\nheartbeat.interval.ms=700\n"
HERE = Path(__file__).parent

Install = Callable[[World], Installation]


def crowd_installation(stack: Stack, folder: Path, world: World, kafka: str) -> Installation:
    """Name an installation of the crowd's app (crowd_app.py)."""
    paths = os.pathsep.join(map(str, (HERE, ROOT, ROOT / "tools")))
    extra = {URL_VARIABLE: world.url, "PYTHONPATH": paths}
    return Installation.at(stack.environment(), folder, app="crowd_app:app", partitions=4, kafka=kafka, extra=extra)


@pytest.fixture
def install(stack: Stack, tmp_path: Path) -> Iterator[Install]:
    """Set up installations of the crowd's app with short sessions; removed when the test is over."""
    made: list[Installation] = []

    def make(world: World) -> Installation:
        folder = tmp_path / f"installation-{len(made)}"
        installation = crowd_installation(stack, folder, world, SHORTEST_SESSION)
        made.append(installation)
        installation.runfold("setup")
        return installation

    yield make
    for installation in made:
        installation.remove()
