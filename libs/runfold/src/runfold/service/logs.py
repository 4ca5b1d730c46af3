"""Logs: JSON lines on stderr, ours through structlog and everybody else's through the same renderer.

Lines carry ``run_id``, ``partition`` and ``epoch`` where they are known, and never a payload: bytes are replaced by
their length, long texts are cut, and tracebacks show no local variables.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

MAX_TEXT = 4_000
_NOISY = ("botocore", "boto3", "urllib3", "s3transfer", "httpx", "httpcore", "asyncio")


def without_payloads(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace bytes by their length and cut long texts, so that no line holds a payload."""
    for key, value in event.items():
        if isinstance(value, bytes | bytearray | memoryview):
            event[key] = f"<{len(value)} bytes>"
        elif isinstance(value, str) and len(value) > MAX_TEXT:
            # The end of a traceback says what happened; of any other text, the beginning does.
            kept = f"…{value[-MAX_TEXT:]}" if key == "exception" else f"{value[:MAX_TEXT]}…"
            event[key] = f"{kept} (cut, {len(value)} characters)"
    return event


def configure(service: str, *, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Set the process up to log JSON lines, one object each, with at least ``ts, level, service, event``."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        _naming(service),
        structlog.processors.format_exc_info,
        without_payloads,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=_dumps),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _naming(service: str) -> structlog.typing.Processor:
    def name(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    return name


def _dumps(value: object, **_: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
