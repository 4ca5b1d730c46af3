"""Illegal events raise, say what is wrong, and change nothing: several for each type of event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from runfold.core.errors import IllegalTransition
from runfold.core.events import Event, Outcome, Source, WaitReason, Why
from runfold.core.payload import inline_json
from runfold.core.state import State
from runfold.core.transitions import fold
from tests.unit.core.building import QUESTION, RUN_ID, VERSION, Drafts, Run, started

Draft = Callable[[Drafts], Event]
OTHER = inline_json({"title": "y"})


def fresh() -> Run:
    """Start a run."""
    return Run()


def asking() -> Run:
    """Have a model call open."""
    run = Run()
    run.do(run.next.ask())
    return run


def failed() -> Run:
    """Have a failed model call."""
    run = asking()
    run.do(run.next.model_failed(retry_at=9))
    return run


def asked() -> Run:
    """Have a turn in which nothing is opened."""
    run = Run()
    run.turn("a", "b")
    return run


def requested() -> Run:
    """Have ``a`` requested at step 2, ``b`` asked for."""
    run = asked()
    run.do(run.next.request("a"))
    return run


def gated() -> Run:
    """Have ``a`` behind the gate run-8c1:2."""
    run = asked()
    run.do(run.next.gate("a"))
    return run


def approved() -> Run:
    """Have ``a`` approved."""
    run = gated()
    run.do(run.next.resume("run-8c1:2", "approved"))
    return run


def rejected() -> Run:
    """Have ``a`` rejected."""
    run = gated()
    run.do(run.next.resume("run-8c1:2", "rejected"))
    return run


def in_doubt() -> Run:
    """Have ``a`` in doubt."""
    run = requested()
    run.do(run.next.doubt("a"))
    return run


def returned() -> Run:
    """Have ``a`` returned, ``b`` asked for."""
    run = requested()
    run.do(run.next.result("a"))
    return run


def patching() -> Run:
    """Have a change of step 2 due."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(run.next.result("a", patch=inline_json({"n": 1})))
    return run


def stopped() -> Run:
    """Wait for a person after an error, at step 1."""
    run = Run()
    run.do(run.next.interrupt())
    return run


def cancelling() -> Run:
    """Have a turn in which nothing is opened, and a cancel."""
    run = asked()
    run.do(run.next.cancel())
    return run


def ended() -> Run:
    """Be at the end."""
    run = Run()
    run.turn()
    run.do(run.next.complete())
    return run


ILLEGAL: list[tuple[Callable[[], Run], Draft, str]] = [
    # the envelope
    (fresh, lambda n: replace(n.ask(), run_id="other"), "meets the state of run 'run-8c1'"),
    (fresh, lambda n: replace(n.ask(), seq=2), "does not follow seq 0"),
    (fresh, lambda n: replace(n.ask(), seq=0), "does not follow seq 0"),
    (fresh, lambda _: started(), "comes twice"),
    (fresh, lambda _: started(seq=1), "comes twice"),
    # model_call_requested
    (fresh, lambda n: replace(n.ask(), step=2), "takes step 2, the next is 1"),
    (fresh, lambda n: replace(n.ask(), attempt=2), "not a first attempt"),
    (fresh, lambda n: n.ask(Why.RETRY), "not a first attempt"),
    (fresh, lambda n: replace(n.ask(), messages_hash="00"), "another transcript"),
    (fresh, lambda n: replace(n.ask(), message_count=2), "another number of messages"),
    (asking, lambda n: n.ask(), "cannot be for first"),
    (asking, lambda n: n.ask(Why.RETRY), "cannot be for retry"),
    (asking, lambda n: replace(n.ask(Why.STALE), step=2), "not the call's next attempt"),
    (asking, lambda n: replace(n.ask(Why.STALE), attempt=1), "not the call's next attempt"),
    (failed, lambda n: n.ask(), "cannot be for first"),
    (failed, lambda n: n.ask(Why.TAKEOVER), "cannot be for takeover"),
    (failed, lambda n: n.ask(Why.ABSENT), "cannot be for absent"),
    (requested, lambda n: n.ask(), "while a turn is open"),
    (patching, lambda n: n.ask(), "while a turn is open"),
    # model_responded, model_call_failed
    (fresh, lambda n: n.answer(), "which is not open"),
    (failed, lambda n: n.answer(), "which is not open"),
    (asking, lambda n: replace(n.answer(), attempt=2), "which is not open"),
    (asking, lambda n: replace(n.answer(), step=2), "which is not open"),
    (asking, lambda n: n.answer("a", "a"), "two tool calls of one id"),
    (fresh, lambda n: n.model_failed(), "which is not open"),
    (failed, lambda n: n.model_failed(), "which is not open"),
    (asking, lambda n: replace(n.model_failed(), attempt=2), "which is not open"),
    # tool_call_requested
    (fresh, lambda n: n.request("a"), "not of the open turn"),
    (asked, lambda n: n.request("z"), "not of the open turn"),
    (asked, lambda n: n.request("b"), "before tool call 'a' is opened"),
    (asked, lambda n: replace(n.request("a"), tool="z"), "the model asked for 'a'"),
    (asked, lambda n: replace(n.request("a"), step=3, idempotency_key="run-8c1:3"), "takes step 3, the next is 2"),
    (asked, lambda n: replace(n.request("a"), idempotency_key="run-8c1:3"), "another step's key"),
    (asked, lambda n: replace(n.request("a"), attempt=2), "has attempt 2 after 0"),
    (asked, lambda n: replace(n.request("a"), approval_id="run-8c1:1"), "names approval"),
    (asked, lambda n: n.request("a", Why.RETRY), "is asked"),
    (asked, lambda n: n.request("a", Why.ABSENT), "is asked"),
    (requested, lambda n: n.request("a"), "is requested"),
    (requested, lambda n: replace(n.request("a", Why.STALE), attempt=1), "has attempt 1 after 1"),
    (requested, lambda n: n.request("a", Why.RETRY, OTHER), "has other arguments"),
    (requested, lambda n: replace(n.request("a", Why.RETRY), step=3, idempotency_key="run-8c1:3"), "has step 3"),
    (requested, lambda n: replace(n.request("b"), step=2, idempotency_key="run-8c1:2"), "takes step 2, the next is 3"),
    (gated, lambda n: n.request("a"), "is gated"),
    (rejected, lambda n: n.request("a"), "is rejected"),
    (approved, lambda n: n.request("a", arguments=OTHER), "has other arguments than were approved"),
    (approved, lambda n: replace(n.request("a"), approval_id=None), "names approval None"),
    (approved, lambda n: n.request("a", Why.TAKEOVER), "is approved"),
    (in_doubt, lambda n: n.request("a", Why.RETRY), "is in_doubt"),
    (in_doubt, lambda n: n.request("a", Why.ABSENT), "is in_doubt"),
    (returned, lambda n: n.request("a", Why.RETRY), "is returned"),
    (cancelling, lambda n: n.request("a"), "is being cancelled"),
    # results of tools
    (asked, lambda n: n.result("z"), "not of the open turn"),
    (asked, lambda n: n.result("a"), "without a request"),
    (asked, lambda n: n.result("a", Source.OPERATOR), "without a request"),
    (asked, lambda n: n.deny("a"), "does not fit"),
    (asked, lambda n: n.refuse("b"), "before tool call 'a' is opened"),
    (asked, lambda n: n.result("a", Source.INVALID), "is no success"),
    (asked, lambda n: replace(n.refuse("a"), step=3), "takes step 3, the next is 2"),
    (requested, lambda n: replace(n.result("a"), attempt=2), "has attempt 2, the call is at 1"),
    (requested, lambda n: replace(n.result("a"), attempt=0), "has attempt 0, the call is at 1"),
    (requested, lambda n: replace(n.result("a"), step=3), "has step 3, the call has 2"),
    (requested, lambda n: n.deny("a"), "does not fit"),
    (gated, lambda n: n.result("a"), "is gated"),
    (gated, lambda n: n.deny("a"), "is gated"),
    (approved, lambda n: n.result("a"), "without a request"),
    (approved, lambda n: n.deny("a"), "does not fit"),
    (rejected, lambda n: n.refuse("a"), "does not fit"),
    (rejected, lambda n: n.result("a", Source.DENIED, Outcome.SUCCESS), "is no success"),
    (returned, lambda n: n.result("a"), "is returned"),
    # changes of the author's state
    (fresh, lambda n: n.patched(1, "n", 1), "is not due for step 1"),
    (returned, lambda n: n.patched(2, "n", 1), "is not due for step 2"),
    (patching, lambda n: n.patched(1, "n", 1), "is not due for step 1"),
    (patching, lambda n: n.patched(2, "n", 1, remaining=-1), "has -1 changes remaining"),
    # waits opened
    (fresh, lambda n: replace(n.interrupt(), step=2, wait_id="run-8c1:2"), "takes step 2, the next is 1"),
    (fresh, lambda n: replace(n.interrupt(), wait_id="run-8c1:2"), "not that of step 1"),
    (fresh, lambda n: n.gate("a"), "not of the open turn"),
    (asked, lambda n: n.gate("b"), "before tool call 'a' is opened"),
    (asked, lambda n: replace(n.gate("a"), arguments=None), "guards no call"),
    (asked, lambda n: replace(n.gate("a"), tool_call_id=None), "guards no call"),
    (asked, lambda n: replace(n.gate("a"), arguments_digest="00"), "another digest"),
    (asked, lambda n: replace(n.doubt("a"), step=2, wait_id="run-8c1:2"), "not open"),
    (requested, lambda n: n.gate("a"), "guards no call"),
    (requested, lambda n: replace(n.doubt("a"), step=1, wait_id="run-8c1:1"), "not open"),
    (gated, lambda n: n.gate("a"), "guards no call"),
    (in_doubt, lambda n: n.doubt("a"), "which is open"),
    (stopped, lambda n: replace(n.interrupt(), step=1, wait_id="run-8c1:1"), "which is open"),
    (cancelling, lambda n: n.gate("a"), "is being cancelled"),
    # waits closed
    (fresh, lambda n: n.resume("run-8c1:1", "approved"), "which is not open"),
    (gated, lambda n: n.resume("run-8c1:3", "approved"), "which is not open"),
    (gated, lambda n: n.resume("run-8c1:2"), "has decision None"),
    (gated, lambda n: n.resume("run-8c1:2", "perhaps"), "has decision 'perhaps'"),
    (gated, lambda n: replace(n.resume("run-8c1:2", "approved"), reason=WaitReason.ERROR), "which is not open"),
    (approved, lambda n: n.resume("run-8c1:2", "approved"), "which is not open"),
    (in_doubt, lambda n: n.resume("run-8c1:2"), "leaves a call in doubt"),
    (in_doubt, lambda n: n.resume("run-8c1:2", "approved"), "leaves a call in doubt"),
    # version_changed
    (fresh, lambda n: replace(n.version(VERSION), old=replace(VERSION, revision="r0")), "from another version"),
    (fresh, lambda n: n.version(VERSION, first_message=QUESTION), "exactly once"),
    (fresh, lambda n: replace(n.version(VERSION), patches=inline_json({"n": 1})), "cannot apply"),
    # cancels and ends
    (cancelling, lambda n: n.cancel(), "comes twice"),
    (fresh, lambda n: n.cancelled(), "was not asked for"),
    (asking, lambda n: n.complete(), "while something is open"),
    (failed, lambda n: n.complete(), "while something is open"),
    (returned, lambda n: n.complete(), "while something is open"),
    (patching, lambda n: n.complete(), "while something is open"),
    (stopped, lambda n: n.complete(), "while something is open"),
    (cancelling, lambda n: n.complete(), "while something is open"),
    (asked, lambda n: n.fail(), "while something is open"),
    (stopped, lambda n: n.fail(), "while something is open"),
]
EVERYTHING: list[Draft] = [
    lambda n: n.ask(),
    lambda n: n.answer(),
    lambda n: n.model_failed(),
    lambda n: n.request("a"),
    lambda n: n.result("a"),
    lambda n: n.patched(1, "n", 1),
    lambda n: n.interrupt(),
    lambda n: n.resume("run-8c1:1", "approved"),
    lambda n: n.version(VERSION),
    lambda n: n.cancel(),
    lambda n: n.complete(),
    lambda n: n.fail(),
    lambda n: n.cancelled(),
]


@pytest.mark.parametrize(("arrange", "draft", "match"), ILLEGAL)
def test_an_illegal_event_raises_and_changes_nothing(arrange: Callable[[], Run], draft: Draft, match: str) -> None:
    """The message names the run, the seq and what is wrong."""
    run = arrange()
    run.refuses(draft(run.next), match)


@pytest.mark.parametrize("draft", EVERYTHING)
def test_nothing_follows_an_end(draft: Draft) -> None:
    """Whatever it is."""
    run = ended()
    run.refuses(draft(run.next), r"after the run has ended \(completed\)")


@pytest.mark.parametrize("draft", EVERYTHING)
def test_nothing_precedes_the_start(draft: Draft) -> None:
    """An event of a run that has not started is illegal."""
    unborn = State(run_id=RUN_ID, agent="", input=QUESTION, version=VERSION, started_at=0)
    with pytest.raises(IllegalTransition, match="before the run has started"):
        fold(None, draft(Drafts(unborn)))


def test_a_run_starts_at_seq_0() -> None:
    """Any other number is a hole."""
    with pytest.raises(IllegalTransition, match="does not have seq 0"):
        fold(None, started(seq=1))


def test_a_cancelled_run_waits_for_its_model_call() -> None:
    """Its completion, or its failure, is recorded first; nothing is asked after it."""
    run = asking()
    run.do(run.next.cancel())
    run.refuses(run.next.cancelled(), "while a call is open")
    run.do(run.next.answer("a"))
    run.do(run.next.cancelled())


def test_no_model_is_asked_after_a_cancel() -> None:
    """Nothing new is started."""
    run = fresh()
    run.do(run.next.cancel())
    run.refuses(run.next.ask(), "is being cancelled")
    run.refuses(run.next.complete(), "while something is open, or against a cancel")
