"""Installations of the acceptance tests: real services on the session's servers, removed afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.installation import Installation
from demo.world import World
from devstack import Stack
from tests.acceptance.installing import Install
from tests.acceptance.playing import Played, playing
from tests.crowd.installing import set_up


@pytest.fixture(scope="session")
def played(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Play the acceptance trace once."""
    with playing(stack, tmp_path_factory.mktemp("trace")) as story:
        yield story


@pytest.fixture
def install(stack: Stack, tmp_path: Path) -> Iterator[Install]:
    """Set up installations of the crowd's app; removed when the test is over."""
    made: list[Installation] = []

    def make(world: World) -> Installation:
        made.append(set_up(stack, tmp_path / f"installation-{len(made)}", world))
        return made[-1]

    yield make
    for installation in made:
        installation.remove()
