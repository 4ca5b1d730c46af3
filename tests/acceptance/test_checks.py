"""The demo's checks notice what must not be: each fault, put into a story that went well, is named."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.checks import failures
from demo.story import KILLED_KEY, QUESTION, Told
from demo.world import Asked, Posted, World
from tests.acceptance.playing import Played

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

Json = Any
Fault = Callable[[Told], Told]


def _events(change: Callable[[list[Json]], object]) -> Fault:
    """Change the events."""

    def fault(told: Told) -> Told:
        events = copy.deepcopy(told.events)
        change(events)
        return replace(told, events=events)

    return fault


def _world(change: Callable[[World], None]) -> Fault:
    """Change the books of the world."""

    def fault(told: Told) -> Told:
        world = copy.copy(told.world)
        world.questions, world.posts = list(world.questions), list(world.posts)
        change(world)
        return replace(told, world=world)

    return fault


def _at(events: list[Json], type_: str, step: int) -> Json:
    return next(event for event in events if event["type"] == type_ and event["step"] == step)


FAULTS: dict[str, tuple[str, Fault]] = {
    "an event is missing": ("sequence", _events(lambda events: events.pop(7))),
    "a step is missing": ("steps", _events(lambda events: events.remove(_at(events, "model_responded", 5)))),
    "another key": ("tools", _events(lambda e: _at(e, "tool_call_requested", 18).update(idempotency_key="x"))),
    "a second attempt": ("tools", _events(lambda e: _at(e, "tool_call_requested", 18).update(attempt=2))),
    "the call itself returned": ("tools", _events(lambda e: _at(e, "tool_returned", 24).update(source="call"))),
    "another approver": ("gate", _events(lambda e: _at(e, "resumed", 19).update(approved_by="eve"))),
    "other arguments": ("gate", _events(lambda e: _at(e, "interrupted", 19)["detail"].update(arguments={}))),
    "not another owner": ("kill", _events(lambda e: _at(e, "tool_returned", 24).update(epoch=0))),
    "a model answer asked for twice": ("model", _world(lambda w: w.questions.append(Asked(QUESTION, 3, 0)))),
    "a duplicate ticket": (
        "effects",
        _world(lambda w: w.posts.append(Posted("tickets", "run-8c1:18", 1, is_new=True))),
    ),
    "a ticket posted again": ("kill", _world(lambda w: w.posts.append(Posted("tickets", KILLED_KEY, 1, is_new=False)))),
    "another spend": ("spend", lambda told: replace(told, at_end={**told.at_end, "usage": {"input_tokens": 1}})),
    "not waiting": ("gate", lambda told: replace(told, at_gate={**told.at_gate, "status": "running"})),
    "no snapshot": ("gate", lambda told: replace(told, snapshot_at_gate=None)),
    "not completed": ("row", lambda told: replace(told, at_end={**told.at_end, "status": "running"})),
    "no notification": ("outside", lambda told: replace(told, notifications=[])),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(played: Played, name: str) -> None:
    """The check of that subject fails; the untouched story passes."""
    subject, fault = FAULTS[name]
    assert failures(played.told) == []
    assert subject in {line.partition(":")[0] for line in failures(fault(played.told))}
