"""Whether a planner depends on the state alone: asked twice, compared with what it said before, and listened to."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import random
import sys
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Any

from runfold.core.decisions import Plan, Planner
from runfold.core.state import State
from runfold.testing.harness.findings import Finding

_IMPURE_MODULES = {time.__name__: "the clock", "_random": "chance", "_socket": "the network"}
_IMPURE_METHODS = {
    (dt.datetime, "now"): "the clock",
    (dt.datetime, "utcnow"): "the clock",
    (dt.datetime, "today"): "the clock",
    (dt.date, "today"): "the clock",
}
_IMPURE_FUNCTIONS = {os.urandom: "chance", open: "a file", os.getpid: "the process"}

Key = tuple[str, bytes, str]


class Asking(Enum):
    """How a planner is asked: each way shows another fault, and two of them may change what it decides."""

    LISTENING = auto()
    TWICE = auto()
    ONCE = auto()


class PlannerJudge:
    """Judges every decision of the planners of one run of a scenario.

    Args:
        known: What was decided without a crash, by state; filled by the first judge.
        asking: How.

    Attributes:
        findings: Without places.
    """

    def __init__(self, known: dict[Key, Plan], asking: Asking) -> None:
        self.findings: list[Finding] = []
        self._known = known
        self._asking = asking

    def __call__(self, state: State, planner: Planner) -> Plan:
        """Ask a planner, and judge what it decides."""
        name = getattr(planner, "__qualname__", repr(planner))
        if self._asking is Asking.LISTENING:
            plan, heard = _listen(planner, state)
            if heard is not None:
                self._find(
                    name, f"{name} reads {heard}; it may only look at the state: the next owner decides otherwise"
                )
        else:
            plan = planner(state)
        if self._asking is Asking.TWICE and (again := planner(state)) != plan:
            self._find(name, f"asked twice about the same state, {name} decides {plan} and then {again}")
        before = self._known.setdefault(_key(state), plan)
        if before != plan:
            self._find(name, f"{name} decides {plan}, and at another time {before} for the same state")
        return plan

    def _find(self, name: str, what: str) -> None:
        self.findings.append(Finding("planner", what, f"{name}: {what}"))


def _key(state: State) -> Key:
    values = hashlib.sha256(repr(sorted((key, value.digest) for key, value in state.values.items())).encode())
    return state.run_id, state.messages_hash, values.hexdigest()


def _listen(planner: Planner, state: State) -> tuple[Plan, str | None]:
    """Ask a planner, and give the first thing that it reads besides the state: what, by which function, and where."""
    heard: list[str] = []

    def hear(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ANN401 - what sys.setprofile gives
        what = _impure(argument) if event == "c_call" and not heard else None
        if what is not None:
            name = getattr(argument, "__qualname__", repr(argument))
            heard.append(f"{what} ({name} at {Path(frame.f_code.co_filename).name}:{frame.f_lineno})")

    earlier = sys.getprofile()
    sys.setprofile(hear)
    try:
        plan = planner(state)
    finally:
        sys.setprofile(earlier)
    return plan, heard[0] if heard else None


def _impure(function: Callable[..., Any]) -> str | None:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, random.Random):
        return "chance"
    if isinstance(owner, type):
        return next(
            (
                what
                for (kind, name), what in _IMPURE_METHODS.items()
                if issubclass(owner, kind) and function.__name__ == name
            ),
            None,
        )
    known = _IMPURE_FUNCTIONS.get(function)
    return known or _IMPURE_MODULES.get(getattr(function, "__module__", None) or "")
