"""Where a process died, told by what the log says and by what was running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import runfold
from runfold.codec.log import type_name
from runfold.core.events import Event, ModelCallRequested, ToolCallRequested
from runfold.testing.harness.journal import Call
from runfold.testing.simulation.loop import Process

_NOT_THE_AUTHORS = (str(Path(runfold.__file__).parent), str(Path(asyncio.__file__).parent))


def place_of_death(events: list[Event], running: list[Call], calls: list[Call], process: Process) -> str:
    """Say where a process is, in the author's words: the last event, and what the author's code was doing."""
    if not events:
        return "before run_started was durable"
    last = events[-1]
    return f"after {_event(last)}{_doing(last, running, calls, _lines(process))}"


def _event(event: Event) -> str:
    named = type_name(type(event))
    step = getattr(event, "step", None)
    if step is not None:
        named += f" of step {step}"
    if isinstance(event, ToolCallRequested):
        named += f" ({event.tool}, attempt {event.attempt})"
    elif getattr(event, "attempt", 1) > 1:
        named += f" (attempt {getattr(event, 'attempt')})"  # noqa: B009 - not every event has one
    return named


def _doing(last: Event, running: list[Call], calls: list[Call], lines: str) -> str:
    asked = [str(call) for call in running if call.kind != "lifespan"]
    if asked:
        return f", while {', '.join(asked)} was running{lines}"
    mine = (last.run_id, getattr(last, "step", 0), getattr(last, "attempt", 0))
    if isinstance(last, ToolCallRequested):
        tools = [call for call in calls if call.kind == "tool" and (call.run_id, call.step, call.attempt) == mine]
        if not tools:
            return f", before {last.tool} was called"
        return f", when {last.tool} had ended and its outcome was not durable"
    if isinstance(last, ModelCallRequested):
        was_asked = any(
            call.kind == "model" and call.run_id == last.run_id and call.arguments["messages"] == last.message_count
            for call in calls
        )
        return ", when its answer was not durable" if was_asked else ", before the model was asked"
    return ""


def _lines(process: Process) -> str:
    """Name the lines at which the author's coroutines were waiting."""
    found = [line for task in process.tasks if (line := _line(task.get_coro())) is not None]
    return f", at {', '.join(dict.fromkeys(found))}" if found else ""


def _line(coroutine: Any) -> str | None:  # noqa: ANN401 - whatever is awaited
    line: str | None = None
    while coroutine is not None:
        frame: FrameType | None = getattr(coroutine, "cr_frame", None)
        if frame is not None and is_authors(frame.f_code):
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        coroutine = getattr(coroutine, "cr_await", None)
    return line


def is_authors(code: CodeType) -> bool:
    """Whether code is neither ours nor asyncio's nor an installed package's."""
    path = code.co_filename
    return not path.startswith((*_NOT_THE_AUTHORS, "<")) and "-packages" not in path


def failed_at(trace: TracebackType | None) -> str:
    """Name the innermost line of the author's in a traceback."""
    line = "?"
    for frame, number in _frames(trace):
        if is_authors(frame.f_code):
            line = f"{Path(frame.f_code.co_filename).name}:{number}"
    return line


def _frames(trace: TracebackType | None) -> Iterable[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
