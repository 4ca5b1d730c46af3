"""A world for each test, and plain tracebacks: rich ones render every local variable of every frame for seconds."""

from collections.abc import Iterator

import pytest
import structlog

from tests.unit.compactor.world import World


@pytest.fixture(autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """Log exceptions as Python does."""
    before = structlog.get_config()
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before["processors"][:-1], renderer])
    yield
    structlog.configure(**before)


@pytest.fixture
def world() -> World:
    """Give an empty log that one owner has claimed."""
    fresh = World()
    fresh.claim()
    return fresh
