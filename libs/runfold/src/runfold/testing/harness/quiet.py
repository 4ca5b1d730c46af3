"""The runtime's log lines in an author's tests: through ``logging``, where pytest shows them when a test fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def quiet_logs(level: int = logging.WARNING) -> Iterator[None]:
    """Send what is at least ``level`` to ``logging``; nothing is changed where the author has configured structlog."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
