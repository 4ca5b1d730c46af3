"""Installations of the acceptance tests: real services on the session's servers, removed afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.installation import Installation
from demo.processes import Services
from devstack import Stack


@pytest.fixture(autouse=True)
def _integration(request: pytest.FixtureRequest) -> None:
    """Everything here needs real servers."""
    request.node.add_marker(pytest.mark.integration)


@pytest.fixture
def removed(stack: Stack, tmp_path: Path) -> Iterator[list[Installation]]:
    """Collect installations that are removed when the test is over; their names are made by ``Installation.at``."""
    made: list[Installation] = []
    yield made
    for installation in made:
        installation.remove()


def services_of(installation: Installation) -> Services:
    """Give what starts the services of an installation, with their logs in its folder."""
    return Services(installation.environment, installation.folder / "logs")
