"""A run step by step, for people: who did what, when. Off unless it is asked for: it costs more than the run."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from runfold.adapters.memory.broker import Stored
from runfold.codec import log as log_codec
from runfold.core.errors import UnknownRecord
from runfold.core.events import InputSettled, PartitionClaimed, RunEvent
from runfold.core.fence import HEADER, Fence, Head
from runfold.testing.simulation.loop import Process

_WORLD = "world"


@dataclass
class Trace:
    """The lines of a run.

    Attributes:
        lines: Time in virtual seconds, process, what.
        is_over: Nothing more is written.
    """

    lines: list[str] = field(default_factory=list)
    is_over: bool = False
    _fences: dict[int, Fence] = field(default_factory=dict)

    def say(self, what: str, actor: str | None = None) -> None:
        """Write a line; by default in the name of the process that runs now."""
        if self.is_over:
            return
        if actor is None:
            process = Process.current()
            actor = _WORLD if process is None else process.name
        self.lines.append(f"{asyncio.get_running_loop().time():12.4f}  {actor:<14} {what}")

    def landed(self, partition: int, offset: int, record: Stored, actor: str) -> None:
        """A record of the log, with the judgement that every reader will come to."""
        fence = self._fences.setdefault(partition, Fence())
        head = Head.decode(dict(record.headers)[HEADER])
        try:
            body = log_codec.decode(record.value or b"")
        except UnknownRecord:
            body = None
        cause = body.cause if isinstance(body, RunEvent | InputSettled) else None
        key = None if record.key is None else record.key.decode()
        judged = fence.admit(head, offset, key, cause)
        said = f"epoch {head.epoch}"
        if isinstance(body, PartitionClaimed):
            said = f"by {body.owner}"
        elif isinstance(body, InputSettled):
            said += f" {body.outcome} of {body.cause.topic}@{body.cause.offset} {body.reason or ''}"
        elif isinstance(body, RunEvent):
            parts = [f"{name}={getattr(body, name)}" for name in ("step", "attempt", "why") if hasattr(body, name)]
            said += f" {key} seq {head.seq} {' '.join(parts)}"
            said += "" if cause is None else f" cause {cause.topic}@{cause.offset}"
        name = type(body).__name__
        self.say(f"log[{partition}]@{offset:<4} {judged.upper():<5} {name:<18} {said}", actor)

    @property
    def digest(self) -> str:
        """The sha256 of the whole, in hex."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take what the processes log into the trace, too."""
        with _configured(processors=[self._render], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)):
            yield

    def _render(self, _: object, method: str, event: MutableMapping[str, Any]) -> str:
        name = event.pop("event")
        error = event.pop("exc_info", None)
        said = " ".join(f"{key}={value}" for key, value in event.items())
        self.say(f"{method}: {name} {said}{'' if error is None else f' {error!r}'}")
        raise structlog.DropEvent


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: the faults would fill pages, and rendering them takes longer than the run."""
    with _configured(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)):
        yield


@contextmanager
def _configured(**settings: Any) -> Iterator[None]:  # noqa: ANN401 - structlog's own
    before, disabled = structlog.get_config(), logging.root.manager.disable
    structlog.configure(**settings)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        structlog.configure(**before)
