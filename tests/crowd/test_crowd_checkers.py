"""Each checker of the crowd is content with one run that went well, and notices what is planted."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from demo.world import Asked, Posted, Turn, World
from runfold.adapters.memory.store import MemoryDatabase
from runfold.adapters.system import SystemClock
from runfold.core.events import (
    UNKNOWN_VERSION,
    ModelCallRequested,
    ModelResponded,
    Outcome,
    Recovery,
    RunEvent,
    Source,
    ToolCallRequested,
    ToolReturned,
    Why,
)
from runfold.core.payload import Inline
from runfold.core.state import Status
from runfold.ports.store import RunRow
from tests.crowd.aftermath import Aftermath, Log, Logged
from tests.crowd.checkers import CHECKERS, Sleep, late_questions, was_sent_on_waking

RUN, KEY = "crowd-0", "crowd-0:2"
PAID = {"id": "P-1", "key": KEY, "title": "x"}
ZOMBIE = 7
_NOTHING = Inline(b"null")


def _events() -> list[Logged]:
    """The middle of a run: asked at 1000, answered at 1100, a payment requested at 1200 and returned at 1300."""

    def shared(seq: int) -> dict[str, Any]:
        return {"run_id": RUN, "seq": seq, "epoch": 0, "at": 0, "attempt": 1}

    call: dict[str, Any] = {"step": 2, "tool_call_id": "c"}
    model: dict[str, Any] = {"message_format": "", "usage": (), "cost_nano_usd": None, "model": "m"}
    events: list[RunEvent] = [
        ModelCallRequested(**shared(0), step=1, why=Why.FIRST, messages_hash="", message_count=1, params=_NOTHING),
        ModelResponded(**shared(1), step=1, message=_NOTHING, tool_calls=(), finish_reason=None, **model),
        ToolCallRequested(
            **shared(2),
            **call,
            tool="pay",
            arguments=_NOTHING,
            idempotency_key=KEY,
            why=Why.FIRST,
            recovery=Recovery.MANUAL,
            timeout_ms=1,
            approval_id=None,
        ),
        ToolReturned(
            **shared(3),
            **call,
            source=Source.CALL,
            outcome=Outcome.SUCCESS,
            result=Inline(json.dumps(PAID).encode()),
        ),
    ]
    return [Logged(1000 + 100 * number, event) for number, event in enumerate(events)]


def _row() -> RunRow:
    return RunRow(
        run_id=RUN,
        partition=0,
        agent="worker",
        status=Status.COMPLETED,
        step=3,
        seq=4,
        version=UNKNOWN_VERSION,
        usage={},
        cost_nano_usd=None,
        unpriced_calls=0,
        unaccounted_calls=0,
        first_offset=1,
        first_epoch=0,
        last_offset=9,
        started_at=0,
        updated_at=0,
        output=Inline(b'"crowd-0 is done"'),
    )


@pytest.fixture
def aftermath() -> Iterator[Aftermath]:
    """A run that went well."""
    database = MemoryDatabase(SystemClock())
    database.runs[RUN] = _row()
    with World(lambda *_: Turn(text="")) as world:
        world.questions.append(Asked(RUN, 0, 1010, ZOMBIE))
        world.posts.append(Posted("payments", KEY, ZOMBIE, is_new=True, attempt=1, at_ms=1210))
        world.resources["payments"] = {KEY: PAID}
        yield Aftermath(Log([], {RUN: _events()}), [], database, {}, world, [RUN])


def _found(aftermath: Aftermath) -> set[str]:
    return {checker.__name__ for checker in CHECKERS if list(checker(aftermath))}


def test_nothing_is_found_where_nothing_is_wrong(aftermath: Aftermath) -> None:
    """Else the others would show nothing."""
    assert _found(aftermath) == set()
    assert list(late_questions(aftermath)) == []


def _post(**changed: Any) -> Callable[[Aftermath], None]:
    def plant(aftermath: Aftermath) -> None:
        aftermath.world.posts[0] = replace(aftermath.world.posts[0], **changed)

    return plant


def _question(**changed: Any) -> Callable[[Aftermath], None]:
    def plant(aftermath: Aftermath) -> None:
        aftermath.world.questions[0] = replace(aftermath.world.questions[0], **changed)

    return plant


def _run(**changed: Any) -> Callable[[Aftermath], None]:
    def plant(aftermath: Aftermath) -> None:
        aftermath.database.runs[RUN] = replace(_row(), **changed)

    return plant


DURABLE, ONCE = "effects_are_preceded_by_their_durable_request", "each_key_takes_effect_at_most_once"
RESULTS, ASKED = "recorded_results_are_those_of_the_world", "models_are_asked_only_after_their_durable_request"
COMPLETES, HOLE = "every_run_completes", "valid_events_are_numbered_without_a_hole"


@pytest.mark.parametrize(
    ("plant", "checker"),
    [
        pytest.param(_post(at_ms=1199), DURABLE, id="an effect before its request was appended"),
        pytest.param(_post(attempt=2), DURABLE, id="an effect of an attempt that was never requested"),
        pytest.param(_post(collection="tickets"), DURABLE, id="another effect than the one that was requested"),
        pytest.param(lambda a: a.world.posts.append(a.world.posts[0]), ONCE, id="a payment made twice"),
        pytest.param(lambda a: a.world.resources.clear(), RESULTS, id="a result of nothing"),
        pytest.param(lambda a: a.log.events[RUN].pop(), RESULTS, id="an effect without a result"),
        pytest.param(lambda a: a.world.resources["payments"].update({KEY: {}}), RESULTS, id="another result"),
        pytest.param(_question(at_ms=999), ASKED, id="a question before its request was appended"),
        pytest.param(_question(answered=1), ASKED, id="a question of a step that was never requested"),
        pytest.param(_run(status=Status.WAITING), COMPLETES, id="a run that waits for ever"),
        pytest.param(_run(output=Inline(b'"other"')), COMPLETES, id="a run with another end"),
        pytest.param(lambda a: a.database.runs.clear(), COMPLETES, id="a run that nobody knows"),
        pytest.param(lambda a: a.log.events[RUN].pop(1), HOLE, id="an event that is missing"),
    ],
)
def test_what_is_planted_is_found(aftermath: Aftermath, plant: Callable[[Aftermath], object], checker: str) -> None:
    """By the checker that is there for it."""
    plant(aftermath)
    assert checker in _found(aftermath)


@pytest.mark.parametrize(
    ("sleep", "is_excused"),
    [
        (Sleep(ZOMBIE, 1050, 2000), True),
        (Sleep(ZOMBIE + 1, 1050, 2000), False),
        (Sleep(ZOMBIE, 1150, 2000), False),
        (Sleep(ZOMBIE, 1050, 1500), False),
    ],
    ids=["asleep while it was recorded", "another slept", "asleep only afterwards", "awake for long"],
)
def test_a_late_question_is_excused_only_of_who_has_just_woken(
    aftermath: Aftermath, sleep: Sleep, *, is_excused: bool
) -> None:
    """A question that arrives after its completion was recorded is a defect, but for a zombie's on waking."""
    at_ms = 2001 if sleep.to_ms == 2000 else 9000
    aftermath.world.questions.append(Asked(RUN, 0, at_ms, ZOMBIE))
    ((asked, recorded_ms),) = late_questions(aftermath)
    assert recorded_ms == 1100
    assert was_sent_on_waking(asked, recorded_ms, [sleep]) is is_excused
