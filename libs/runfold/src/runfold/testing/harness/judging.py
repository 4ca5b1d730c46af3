"""What one run of a scenario with a crash says about the author's code, beside one without."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from runfold.core.decisions import status
from runfold.core.events import Recovery, WaitReason
from runfold.core.payload import Inline, Payload
from runfold.core.state import State
from runfold.testing.harness.errors import RunWaitsError
from runfold.testing.harness.findings import PERSON, Finding
from runfold.testing.harness.journal import Call
from runfold.testing.harness.places import failed_at

Json = Any
_SHOWN = 160


@dataclass
class Played:
    """One run of the scenario.

    Attributes:
        value, error: What the scenario returned or raised.
        runs: How each run ended, by id.
        calls: Of the author's code.
        in_doubt: Tool and step of calls that wait for a person's word.
        place: Where the process died; None: it did not.
        planning: What the planner's judge found.
    """

    value: Any = None
    error: BaseException | None = None
    runs: dict[str, Json] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    in_doubt: list[str] = field(default_factory=list)
    place: str | None = None
    planning: list[Finding] = field(default_factory=list)


def outcome_of(state: State) -> Json:
    """Give what a run came to."""
    return {
        "status": str(status(state)),
        "output": _json(state.output),
        "error": state.error,
        "state": {key: _json(value) for key, value in sorted(state.values.items())},
    }


def doubts_of(state: State) -> list[str]:
    """Name the calls of which nobody knows whether they happened."""
    waits = [wait for wait in state.waits.values() if wait.reason is WaitReason.INDETERMINATE]
    return [f"{_tool_at(state, wait.step)} (step {wait.step})" for wait in waits]


def _tool_at(state: State, step: int) -> str:
    call = state.call_at(step)
    return "?" if call is None else call.asked.tool


def _json(payload: Payload | None) -> Json:
    if payload is None:
        return None
    return json.loads(payload.data) if isinstance(payload, Inline) else f"sha256:{payload.digest}"


def judged(
    played: Played, calm: Played, unstable: Collection[str], recoveries: dict[str, Recovery], changing: Collection[str]
) -> Iterator[Finding]:
    """Compare a run with a crash with the one without.

    Args:
        played: The one with a crash.
        calm: The one without.
        unstable: What differs without a crash, too, and says nothing: run ids, or ``""`` for the returned value.
        recoveries: Classes of the tools, by name.
        changing: Tools whose result may be another one each time.
    """
    yield from played.planning
    doubts = [doubt for doubt in played.in_doubt if doubt not in calm.in_doubt]
    for doubt in doubts:
        yield Finding(PERSON, f"whether {doubt} has happened (runfold resolve)", doubt)
    if played.error is not None and not _is_doubt(played.error):
        error = played.error
        where = failed_at(error.__traceback__)
        said = str(error).strip() or "no message"
        what = f"{type(error).__name__} at {where}: {said}"
        yield Finding("scenario", what, f"{type(error).__name__} at {where}")
    if not doubts and played.error is None:
        yield from _otherwise(played, calm, unstable)
    yield from _repeated(played.calls, recoveries, changing)


def _is_doubt(error: BaseException) -> bool:
    return isinstance(error, RunWaitsError) and WaitReason.INDETERMINATE.value in error.reasons


def differences(played: Played, calm: Played) -> Iterator[tuple[str, str]]:
    """Give what two runs of a scenario do not have in common: the run's id, or "", and both in words."""
    for run_id in {**calm.runs, **played.runs}:
        here, there = played.runs.get(run_id), calm.runs.get(run_id)
        if here != there:
            yield run_id, f"run {run_id}: {_differing(here, there)}"
    if played.value != calm.value:
        yield "", f"the scenario returns {_short(played.value)} instead of {_short(calm.value)}"


def _otherwise(played: Played, calm: Played, unstable: Collection[str]) -> Iterator[Finding]:
    for run_id, what in differences(played, calm):
        if run_id not in unstable:
            yield Finding("result", what, what)


def _differing(here: Json, there: Json) -> str:
    if here is None or there is None:
        return "it was not started" if here is None else "it was started, which it is not without a crash"
    parts = [f"{key} {_short(here[key])} instead of {_short(there[key])}" for key in here if here[key] != there[key]]
    return ", ".join(parts)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _repeated(calls: list[Call], recoveries: dict[str, Recovery], changing: Collection[str]) -> Iterator[Finding]:
    """Judge the executions and lookups of each step."""
    of_steps = sorted((one for one in calls if one.kind in ("tool", "lookup")), key=lambda one: (one.run_id, one.step))
    for (run_id, step), group in groupby(of_steps, key=lambda one: (one.run_id, one.step)):
        asked = list(group)
        tools = [one for one in asked if one.kind == "tool" and one.outcome != "refused"]
        if not tools:
            continue
        first = tools[0]
        subject = f"{first.tool} (step {step} of {run_id})"
        yield from _other_request(subject, first, tools)
        known = next((one for one in tools if one.outcome == "returned"), None)
        if known is None or first.tool in changing:
            continue
        yield from _other_result(subject, known, tools, recoveries.get(first.tool))
        yield from _wrong_lookup(subject, known, asked)


def _other_request(subject: str, first: Call, tools: list[Call]) -> Iterator[Finding]:
    for one in tools[1:]:
        if (one.key, one.arguments) != (first.key, first.arguments):
            what = f"{subject}: {first.key} {first.arguments}, then {one.key} {one.arguments}"
            yield Finding("arguments", what, subject)


def _other_result(subject: str, known: Call, tools: list[Call], recovery: Recovery | None) -> Iterator[Finding]:
    other = next((one for one in tools if one.outcome == "returned" and one.result != known.result), None)
    if other is None or recovery not in (Recovery.KEYED, Recovery.RERUN):
        return
    hint = (
        "does what it calls honour ctx.idempotency_key?"
        if recovery is Recovery.KEYED
        else "does it only read? (else it is KEYED or LOOKUP; what really changes by itself: changing={...})"
    )
    results = f"attempt {known.attempt} gave {_short(known.result)}, attempt {other.attempt} {_short(other.result)}"
    yield Finding("repeated", f"{recovery} tool {subject}: {results}; {hint}", subject)


def _wrong_lookup(subject: str, known: Call, asked: list[Call]) -> Iterator[Finding]:
    """A call that had returned: its lookup knows it, and gives the same."""
    behind = asked[asked.index(known) + 1 :]
    for one in behind:
        if one.kind != "lookup":
            continue
        if one.outcome == "absent":
            what = (
                f"the lookup of {subject} says ABSENT, but attempt {known.attempt} had returned {_short(known.result)}"
            )
            yield Finding("lookup", what, subject)
        elif one.outcome == "returned" and one.result != known.result:
            what = (
                f"the lookup of {subject} gives {_short(one.result)}, but the call had returned {_short(known.result)}"
            )
            yield Finding("lookup", what, subject)
