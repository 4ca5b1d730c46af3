"""A world for each test."""

import pytest

from tests.unit.compactor.world import World


@pytest.fixture
def world() -> World:
    """Give an empty log that one owner has claimed."""
    fresh = World()
    fresh.claim()
    return fresh
