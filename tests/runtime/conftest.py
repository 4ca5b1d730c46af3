"""Plain tracebacks: rich ones render every local variable of every frame, which takes seconds each."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """Log exceptions as Python does."""
    before = structlog.get_config()
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before["processors"][:-1], renderer])
    yield
    structlog.configure(**before)
