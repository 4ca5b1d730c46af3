"""The world of the client's tests."""

import pytest

from tests.unit.client.world import World


@pytest.fixture
def world() -> World:
    """Return an empty installation in memory."""
    return World()
