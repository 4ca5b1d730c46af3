"""What happens next, and what a person is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runfold.core.decisions import (
    NOTHING,
    CallModel,
    Cancel,
    CloseWait,
    Decision,
    Deny,
    Fail,
    Finish,
    OpenCalls,
    Patch,
    RequestCall,
    Stop,
    decide,
    is_sequential,
    openable,
    status,
)
from runfold.core.errors import IllegalTransition
from runfold.core.events import Recovery, Source, WaitReason, Why
from runfold.core.payload import inline_json
from runfold.core.state import Phase, State, Status
from tests.unit.core.building import QUESTION, VERSION, Run, started


def opens(run: Run) -> list[str]:
    """Name the calls that are to be opened."""
    decision = decide(run.state)
    assert isinstance(decision, OpenCalls)
    return [call.asked.tool_call_id for call in decision.calls]


def test_a_new_run_asks_the_model() -> None:
    """The default planner asks until a completion asks for no tool."""
    run = Run()
    assert decide(run.state) == CallModel(Why.FIRST)
    run.do(run.next.ask())
    assert decide(run.state) == NOTHING
    run.do(run.next.answer())
    assert decide(run.state) == Finish()
    run.do(run.next.complete())
    assert decide(run.state) == NOTHING
    assert status(run.state) is Status.COMPLETED


def test_a_turn_opens_its_calls_and_then_asks_again() -> None:
    """In the completion's order, all that are not opened yet."""
    run = Run()
    run.turn("a", "b")
    assert opens(run) == ["a", "b"]
    run.do(run.next.request("a"))
    assert opens(run) == ["b"]
    run.do(run.next.request("b"))
    assert decide(run.state) == NOTHING
    run.do(run.next.result("a"))
    run.do(run.next.result("b"))
    assert decide(run.state) == CallModel(Why.FIRST)


def test_patches_come_before_the_next_model_call() -> None:
    """The author's state is whole before anybody decides on it."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(run.next.result("a", patch=inline_json({"n": 1})))
    assert decide(run.state) == Patch()
    run.do(run.next.patched(2, "n", 1))
    assert decide(run.state) == CallModel(Why.FIRST)


def test_an_approved_call_is_requested_and_a_rejected_one_denied() -> None:
    """While another gate is open."""
    run = Run()
    run.turn("a", "b")
    first, second = run.do(run.next.gate("a")), run.do(run.next.gate("b"))
    assert decide(run.state) == NOTHING
    run.do(run.next.resume(first.wait_id, "approved"))
    assert decide(run.state) == RequestCall(run.call("a"), Why.FIRST)
    run.do(run.next.request("a"))
    run.do(run.next.resume(second.wait_id, "rejected"))
    assert decide(run.state) == Deny(run.call("b"))


def test_a_gate_and_a_call_in_doubt_are_waited_for() -> None:
    """Absent: the call is requested again. Returned after all: the wait is closed first."""
    run = Run()
    run.turn("a", "b")
    run.do(run.next.request("a"))
    run.do(run.next.request("b"))
    a = run.do(run.next.doubt("a"))
    b = run.do(run.next.doubt("b"))
    assert decide(run.state) == NOTHING
    run.do(run.next.resume(a.wait_id, "absent"))
    assert decide(run.state) == RequestCall(run.call("a"), Why.ABSENT)
    run.do(run.next.result("b", Source.OPERATOR))
    assert decide(run.state) == CloseWait(run.state.waits[b.wait_id])
    run.do(run.next.resume(b.wait_id))
    assert decide(run.state) == RequestCall(run.call("a"), Why.ABSENT)
    assert run.call("b").phase is Phase.RETURNED


@pytest.mark.parametrize("returned", ["a", "b"])
def test_the_call_that_returned_is_told_from_what_is_still_waited_for(returned: str) -> None:
    """Two calls in doubt beside a gate: the wait of the one that has returned is closed, whichever was opened first."""
    run = Run()
    run.turn("gated", "a", "b")
    gate = run.do(run.next.gate("gated"))
    doubts = {}
    for name in ("a", "b"):
        run.do(run.next.request(name))
        doubts[name] = run.do(run.next.doubt(name))
    assert decide(run.state) == NOTHING
    run.do(run.next.result(returned))
    assert decide(run.state) == CloseWait(run.state.waits[doubts[returned].wait_id])
    run.do(run.next.resume(doubts[returned].wait_id))
    assert decide(run.state) == NOTHING
    other = "b" if returned == "a" else "a"
    assert set(run.state.waits) == {gate.wait_id, doubts[other].wait_id}


def test_a_wait_is_closed_even_when_its_turn_has() -> None:
    """The outcome of the last call in doubt closes the turn; its wait must not hold up the next model call."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    doubt = run.do(run.next.doubt("a"))
    run.do(run.next.result("a"))
    assert decide(run.state) == CloseWait(run.state.waits[doubt.wait_id])
    run.do(run.next.resume(doubt.wait_id))
    assert decide(run.state) == CallModel(Why.FIRST)


def test_a_failed_model_call_is_retried_not_before_its_time_or_stops_the_run() -> None:
    """And a resume lets it be asked again."""
    run = Run()
    run.do(run.next.ask())
    run.do(run.next.model_failed(retry_at=99))
    assert decide(run.state) == CallModel(Why.RETRY, 99)
    run.do(run.next.ask(Why.RETRY))
    run.do(run.next.model_failed())
    assert decide(run.state) == Stop("503")
    stop = run.do(run.next.interrupt())
    assert decide(run.state) == NOTHING
    assert status(run.state) is Status.WAITING
    run.do(run.next.resume(stop.wait_id))
    assert decide(run.state) == CallModel(Why.RETRY, 0)


OPERATIONAL = [
    WaitReason.ERROR,
    WaitReason.VERSION_MISMATCH,
    WaitReason.UNKNOWN_AGENT,
    WaitReason.BUDGET_EXCEEDED,
]


@pytest.mark.parametrize("reason", OPERATIONAL)
def test_an_operational_wait_stops_everything_until_it_is_closed(reason: WaitReason) -> None:
    """Nothing is decided meanwhile; afterwards the run goes on where it was."""
    run = Run()
    run.turn("a")
    stop = run.do(run.next.interrupt(reason))
    assert (decide(run.state), status(run.state)) == (NOTHING, Status.WAITING)
    run.do(run.next.resume(stop.wait_id))
    assert opens(run) == ["a"]


def test_two_operational_waits_both_hold() -> None:
    """An error, and then a version that differs."""
    run = Run()
    first, second = run.do(run.next.interrupt()), run.do(run.next.interrupt(WaitReason.VERSION_MISMATCH))
    run.do(run.next.resume(first.wait_id))
    assert decide(run.state) == NOTHING
    run.do(run.next.resume(second.wait_id))
    assert decide(run.state) == CallModel()


def test_a_run_of_an_unknown_agent_decides_nothing_until_it_is_stamped() -> None:
    """Its gate is the shell's business."""
    run = Run(started(first_message=None))
    assert decide(run.state) == NOTHING
    run.do(run.next.version(VERSION, first_message=QUESTION))
    assert decide(run.state) == CallModel()


def _open_call(run: Run) -> None:
    run.turn("a")
    run.do(run.next.request("a"))


def _open_model(run: Run) -> None:
    run.do(run.next.ask())


@pytest.mark.parametrize("arrange", [_open_call, _open_model])
def test_a_cancel_waits_for_what_is_open(arrange: Callable[[Run], None]) -> None:
    """Nothing new is started; then it ends."""
    run = Run()
    arrange(run)
    run.do(run.next.cancel())
    assert (decide(run.state), status(run.state)) == (NOTHING, Status.RUNNING)
    run.do(run.next.result("a") if run.state.turn else run.next.answer("a", "b"))
    assert decide(run.state) == Cancel(())


def _gated(run: Run) -> None:
    run.turn("a")
    run.do(run.next.gate("a"))


def _approved(run: Run) -> None:
    _gated(run)
    run.do(run.next.resume("run-8c1:2", "approved"))


def _absent(run: Run) -> None:
    _open_call(run)
    run.do(run.next.doubt("a"))
    run.do(run.next.resume("run-8c1:2", "absent"))


def _stopped(run: Run) -> None:
    run.do(run.next.interrupt())


def _failed(run: Run) -> None:
    run.do(run.next.ask())
    run.do(run.next.model_failed())


def _patching(run: Run) -> None:
    _open_call(run)
    run.do(run.next.result("a", patch=inline_json({"n": 1})))


@pytest.mark.parametrize("arrange", [_gated, _approved, _absent, _stopped, _failed, _patching])
def test_a_cancel_ends_a_run_wherever_nothing_is_open(arrange: Callable[[Run], None]) -> None:
    """A gate, an approval, an absence, an error, a retry, a change: none of them holds it up, no key is open."""
    run = Run()
    arrange(run)
    run.do(run.next.cancel())
    decision = decide(run.state)
    assert decision == Cancel(())
    run.do(run.next.cancelled())
    assert status(run.state) is Status.CANCELLED


def test_a_cancel_names_the_calls_in_doubt_except_harmless_ones() -> None:
    """Those of RERUN tools had no effect that anybody must look for."""
    run = Run()
    run.turn("a", "b")
    run.do(run.next.request("a", recovery=Recovery.MANUAL))
    run.do(run.next.request("b", recovery=Recovery.RERUN))
    run.do(run.next.doubt("a"))
    run.do(run.next.doubt("b"))
    run.do(run.next.cancel())
    assert decide(run.state) == Cancel(("run-8c1:2",))


def test_a_planner_is_asked_only_where_nothing_is_open() -> None:
    """It decides where a turn is closed; mechanics are not its business."""
    asked: list[int] = []

    def plan(state: State) -> Fail:
        asked.append(state.seq)
        return Fail("enough")

    run = Run()
    assert decide(run.state, plan) == Fail("enough")
    run.turn("a")
    assert isinstance(decide(run.state, plan), OpenCalls)
    run.do(run.next.request("a"))
    assert decide(run.state, plan) == NOTHING
    run.do(run.next.result("a"))
    assert decide(run.state, plan) == Fail("enough")
    assert asked == [0, 4]


def test_status_is_waiting_only_while_nothing_is_open_or_decidable() -> None:
    """A gate beside an open call: running; the gate alone: waiting; approved: running again."""
    run = Run()
    assert status(run.state) is Status.RUNNING
    run.turn("a", "b")
    run.do(run.next.gate("a"))
    assert status(run.state) is Status.RUNNING
    run.do(run.next.request("b"))
    assert status(run.state) is Status.RUNNING
    run.do(run.next.result("b"))
    assert status(run.state) is Status.WAITING
    run.do(run.next.resume("run-8c1:2", "approved"))
    assert status(run.state) is Status.RUNNING


# --- sequential tools -------------------------------------------------------------------------------------------


def may_open(run: Run, *sequential: str) -> list[str]:
    """Name the calls that the shell may open now."""
    decision: Decision = decide(run.state)
    if not isinstance(decision, OpenCalls):
        return []
    is_one_by_one = is_sequential(run.state.turn, frozenset(sequential))
    calls = openable(decision.calls, sequential=is_one_by_one)
    return [call.asked.tool_call_id for call in calls]


def test_without_a_sequential_tool_all_calls_open_at_once() -> None:
    """They run side by side."""
    run = Run()
    run.turn("a", "b", "c")
    assert may_open(run) == ["a", "b", "c"]
    assert may_open(run, "z") == ["a", "b", "c"]


def test_one_sequential_tool_makes_the_whole_turn_sequential() -> None:
    """The next call opens once the one before has returned."""
    run = Run()
    run.turn("a", "b", "c")
    for call, then in (("a", ["b"]), ("b", ["c"]), ("c", [])):
        assert may_open(run, "b") == [call]
        run.do(run.next.request(call, alone=True))
        assert may_open(run, "b") == []
        run.do(run.next.result(call))
        assert may_open(run, "b") == then


def test_a_sequential_call_behind_a_gate_is_executed_once_approved() -> None:
    """What is approved, rejected or absent goes before what is still to be opened, or neither would ever move."""
    run = Run()
    run.turn("a", "b", "c")
    run.do(run.next.gate("a", alone=True))
    assert may_open(run, "a") == []
    assert status(run.state) is Status.WAITING
    with pytest.raises(IllegalTransition, match="beside a sequential call"):
        run.do(run.next.gate("b", alone=True))
    run.do(run.next.resume("run-8c1:2", "approved"))
    assert decide(run.state) == RequestCall(run.call("a"), Why.FIRST)
    run.do(run.next.request("a", alone=True))
    run.do(run.next.doubt("a"))
    assert may_open(run, "a") == []
    run.do(run.next.resume("run-8c1:3", "absent"))
    assert decide(run.state) == RequestCall(run.call("a"), Why.ABSENT)
    run.do(run.next.request("a", Why.ABSENT))
    run.do(run.next.result("a"))
    run.do(run.next.gate("b", alone=True))
    run.do(run.next.resume("run-8c1:4", "rejected"))
    assert decide(run.state) == Deny(run.call("b"))
    run.do(run.next.deny("b"))
    assert may_open(run, "a") == ["c"]
