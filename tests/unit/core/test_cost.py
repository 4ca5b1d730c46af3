"""What an event costs does not depend on how long the run is."""

from __future__ import annotations

import gc
import sys
from types import FrameType

from runfold.core.decisions import decide, status
from runfold.core.payload import inline_json
from tests.unit.core.building import Run


def _turn(run: Run) -> None:
    """Do what a run does over and over: a model call, a gated and a plain call, a change of state."""
    run.do(run.next.ask())
    run.do(run.next.answer("a", "b"))
    gate = run.do(run.next.gate("a"))
    run.do(run.next.request("b"))
    run.do(run.next.result("b", patch=inline_json({"n": 1})))
    status(run.state)
    run.do(run.next.resume(gate.wait_id, "approved"))
    run.do(run.next.request("a"))
    run.do(run.next.result("a"))
    run.do(run.next.patched(run.state.due_patches[0][0], "n", 1))
    decide(run.state)


def _calls_of_a_turn(run: Run) -> int:
    """Count the calls of Python and C functions."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # finalizers of other tests' objects are calls too
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        _turn(run)
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


def test_the_work_of_an_event_does_not_grow_with_the_run() -> None:
    """The thousandth turn takes the very function calls that the tenth took."""
    run = Run()
    for _ in range(10):
        _turn(run)
    early = _calls_of_a_turn(run)
    for _ in range(1_000):
        _turn(run)
    assert _calls_of_a_turn(run) == early
