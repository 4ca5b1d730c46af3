"""What an answer means: found at once, absent only when overdue, undecided five times and overdue: a person."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runfold.codec.input_types import VerdictInput
from runfold.codec.inputs import encode_verdict, parse_input
from runfold.core.events import Outcome, Recovery
from runfold.core.payload import Inline
from runfold.ports.agents import NotThere, Returned, Unknown
from runfold.ports.store import DueCall, OpenCallRow
from runfold.runtime.reconciler.judging import Later, judge, judge_manual, unsayable

CALL = OpenCallRow(
    run_id="run-1",
    step=18,
    partition=0,
    agent="one",
    tool="create",
    tool_call_id="call-1",
    arguments=Inline(b"{}"),
    attempt=2,
    epoch=5,
    recovery=Recovery.LOOKUP,
    timeout_ms=1000,
)


def due(*, owner_gone: bool = True, overdue: bool = True, tries: int = 0) -> DueCall:
    """Make a due call."""
    return DueCall(CALL, owner_gone, overdue, tries)


@pytest.mark.parametrize("overdue", [True, False])
def test_found_is_believed_at_once(overdue: bool) -> None:  # noqa: FBT001 - a parameter
    """With everything that the tool would have returned."""
    found = Returned(Outcome.SUCCESS, b'{"id":"T-7"}', for_model=b'"T-7"', patch=b'{"t":1}')
    verdict = judge(due(overdue=overdue), found, "host:1", 1.0)
    assert not isinstance(verdict, Later)
    assert verdict == VerdictInput(
        run_id="run-1",
        step=18,
        attempt=2,
        outcome="found",
        verdict_by="host:1",
        result=b'{"id":"T-7"}',
        for_model=b'"T-7"',
        patch=b'{"t":1}',
    )
    assert parse_input("control", b"run-1", encode_verdict(verdict)) == verdict


def test_absent_is_believed_only_when_overdue() -> None:
    """The writer may be about to act, and starts nothing after the time-out."""
    later = judge(due(overdue=False, tries=3), NotThere(), "host:1", 1.0)
    assert later == Later(1.0, 3, "absent, which is believed only after its time-out and grace")
    verdict = judge(due(), NotThere(), "host:1", 1.0)
    assert not isinstance(verdict, Later)
    assert verdict.outcome == "absent"


def test_absent_is_believed_only_when_its_lookup_has_settled() -> None:
    """Asked again meanwhile, never more than 16 seconds apart: what happened may show at any moment."""
    unsettled = [
        judge(replace(due(tries=2), settles_in_s=left), NotThere(), "host:1", 1.0) for left in (0.1, 9.0, 90.0)
    ]
    assert [(one.delay_s, one.tries) for one in unsettled if isinstance(one, Later)] == [(1.0, 2), (9.0, 2), (16.0, 2)]
    found = judge(replace(due(), settles_in_s=90.0), Returned(Outcome.SUCCESS, b"1"), "host:1", 1.0)
    assert not isinstance(found, Later)


def test_the_author_says_how_many_lookups_may_fail() -> None:
    assert isinstance(judge(due(tries=0), Unknown("who knows"), "host:1", 1.0, 2), Later)
    assert not isinstance(judge(due(tries=1), Unknown("who knows"), "host:1", 1.0, 2), Later)


def test_five_undecided_lookups_make_it_indeterminate_when_it_is_overdue() -> None:
    """1, 2, 4, 8 seconds apart; not overdue: asked on, 16 seconds apart."""
    said = [judge(due(tries=tries), Unknown("who knows"), "host:1", 1.0) for tries in range(5)]
    assert [(one.delay_s, one.tries) for one in said if isinstance(one, Later)] == [(1, 1), (2, 2), (4, 3), (8, 4)]
    last = said[-1]
    assert not isinstance(last, Later)
    assert (last.outcome, last.error) == ("indeterminate", "5 lookups did not decide it; the last: who knows")
    on = judge(due(overdue=False, tries=4), Unknown("who knows"), "host:1", 1.0)
    assert on == Later(16.0, 5, "who knows")


@pytest.mark.parametrize(("owner_gone", "overdue"), [(True, False), (False, True), (False, False)])
def test_manual_waits_for_its_owner_and_its_time(owner_gone: bool, overdue: bool) -> None:  # noqa: FBT001 - parameters
    """As long as somebody may still say how it ended."""
    assert isinstance(judge_manual(due(owner_gone=owner_gone, overdue=overdue), "host:1", 1.0), Later)


def test_manual_is_a_persons_matter_then() -> None:
    """Nobody else can be asked."""
    verdict = judge_manual(due(), "host:1", 1.0)
    assert not isinstance(verdict, Later)
    assert (verdict.outcome, verdict.attempt, verdict.verdict_by) == ("indeterminate", 2, "host:1")


@pytest.mark.parametrize("error", ["", "nul \0 inside", "half \ud800 pair", "x" * 50_000])
def test_whatever_an_author_raised_fits_into_a_verdict(error: str) -> None:
    """Bounded, and text that JSON can hold."""
    verdict = judge(due(tries=4), Unknown(error), "host:1", 1.0)
    assert not isinstance(verdict, Later)
    assert json.loads(encode_verdict(verdict))["error"]
    assert json.loads(encode_verdict(unsayable(due(), "host:1", "too large")))["outcome"] == "indeterminate"
