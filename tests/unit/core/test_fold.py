"""What legal events make of a run: steps, keys, transcript, patches, waits, ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runfold.codec.snapshots import encode_state
from runfold.core.events import Cause, Interrupted, Outcome, Recovery, Source, WaitReason, Why
from runfold.core.payload import inline_json
from runfold.core.state import EntryKind, Phase, Status
from tests.unit.core.building import QUESTION, VERSION, Run, refold, started


def test_a_started_run_holds_its_first_message() -> None:
    """The first message is the transcript's first entry; no step is allotted yet."""
    run = Run()
    assert [(entry.kind, entry.payload) for entry in run.state.transcript] == [(EntryKind.USER, QUESTION)]
    assert (run.state.seq, run.state.step, run.state.ended) == (0, 0, None)


def test_model_and_tool_take_alternating_steps() -> None:
    """A model call, a tool execution: each takes the next step, its outcome shares it."""
    run = Run()
    asked = run.do(run.next.ask())
    answered = run.do(run.next.answer("a"))
    requested = run.do(run.next.request("a"))
    returned = run.do(run.next.result("a"))
    assert [asked.step, answered.step, requested.step, returned.step] == [1, 1, 2, 2]
    assert requested.idempotency_key == "run-8c1:2"
    assert run.do(run.next.ask()).step == 3


def test_a_gate_takes_the_step_directly_before_its_call() -> None:
    """``[a, b (needs approval), c]`` after step 17: a 18, gate 19, b 20, c 21, as in the contract."""
    run = Run()
    run.at_step(17)
    run.do(run.next.answer("a", "b", "c"))
    a = run.do(run.next.request("a"))
    gate = run.do(run.next.gate("b"))
    c = run.do(run.next.request("c"))
    run.do(run.next.resume("run-8c1:19", "approved"))
    b = run.do(run.next.request("b"))
    assert [a.step, gate.step, b.step, c.step] == [18, 19, 20, 21]
    assert [a.idempotency_key, gate.wait_id, b.idempotency_key] == ["run-8c1:18", "run-8c1:19", "run-8c1:20"]
    assert b.approval_id == "run-8c1:19"
    assert run.state.used_approvals == {"run-8c1:19": ("approved", "dana")}


def test_denied_and_invalid_calls_take_a_step_without_a_request() -> None:
    """Each gets ``tool_returned`` with ``is_error``: an invalid one takes the next step, a denied one has its own."""
    run = Run()
    run.turn("a", "b", "c")
    invalid = run.do(run.next.refuse("a"))
    gate = run.do(run.next.gate("b"))
    c = run.do(run.next.request("c"))
    run.do(run.next.resume(gate.wait_id, "rejected"))
    denied = run.do(run.next.deny("b"))
    assert [invalid.step, gate.step, denied.step, c.step] == [2, 3, 4, 5]
    assert invalid.is_error
    assert denied.is_error
    assert (invalid.attempt, denied.attempt) == (0, 0)
    run.do(run.next.result("c"))
    assert run.do(run.next.ask()).step == 6


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_results_stand_in_call_order_whatever_the_order_of_returns(order: tuple[str, ...]) -> None:
    """The next model request is the same: same entries, same hash, patches in the order of the calls."""
    run = Run()
    run.turn("a", "b", "c")
    for call in "abc":
        run.do(run.next.request(call))
    for call in order:
        run.do(run.next.result(call, patch=inline_json({"by": call})))
    shown = [(entry.kind, entry.tool_call_id, entry.outcome) for entry in run.state.transcript[2:]]
    assert shown == [(EntryKind.TOOL, call, "success") for call in "abc"]
    assert run.state.due_patches == [
        (step, inline_json({"by": call})) for step, call in zip((2, 3, 4), "abc", strict=True)
    ]
    assert run.state.messages_hash == _hash_of_turn_in_call_order()


def _hash_of_turn_in_call_order() -> bytes:
    run = Run()
    run.turn("a", "b", "c")
    for call in "abc":
        run.do(run.next.request(call))
        run.do(run.next.result(call))
    return run.state.messages_hash


def test_results_are_held_until_the_turn_closes() -> None:
    """No model sees half a turn."""
    run = Run()
    run.turn("a", "b")
    run.do(run.next.request("a"))
    run.do(run.next.request("b"))
    run.do(run.next.result("b"))
    assert len(run.state.transcript) == 2
    assert [call.phase for call in run.state.turn] == [Phase.REQUESTED, Phase.RETURNED]
    run.do(run.next.result("a"))
    assert len(run.state.transcript) == 4
    assert run.state.turn == []


def test_the_model_sees_for_model_where_it_differs() -> None:
    """``for_model`` is what stands in the transcript."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(replace(run.next.result("a"), for_model=inline_json("short")))
    assert run.state.transcript[-1].payload == inline_json("short")


def test_patches_are_applied_key_by_key_and_a_crash_between_them_is_seen() -> None:
    """``applied_patches`` counts what is done, until none remains."""
    run = Run()
    run.turn("a", "b")
    for call in "ab":
        run.do(run.next.request(call))
        run.do(run.next.result(call, patch=inline_json({"n": call, "m": 1})))
    run.do(run.next.patched(2, "m", 1, remaining=3))
    run.do(run.next.patched(2, "n", 1, remaining=2))
    assert (run.state.applied_patches, len(run.state.due_patches)) == (2, 2)
    run.do(run.next.patched(3, "m", 2, remaining=1))
    run.do(run.next.patched(3, "n", 2, remaining=0))
    assert (run.state.applied_patches, run.state.due_patches) == (0, [])
    assert run.state.values == {"m": inline_json(2), "n": inline_json(2)}


def test_an_empty_patch_is_no_patch() -> None:
    """Otherwise the turn would have changes due and none to make, for ever."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(run.next.result("a", patch=inline_json({})))
    assert run.state.due_patches == []


def test_attempts_share_the_step_and_the_key() -> None:
    """Whatever the reason for the attempt; only retries, losses and absences are counted, each apart."""
    run = Run()
    run.turn("a")
    requests = [
        run.do(run.next.request("a", why)) for why in (Why.FIRST, Why.RETRY, Why.TAKEOVER, Why.STALE, Why.ABSENT)
    ]
    assert {(request.step, request.idempotency_key) for request in requests} == {(2, "run-8c1:2")}
    assert [request.attempt for request in requests] == [1, 2, 3, 4, 5]
    call = run.call("a")
    assert (call.retries, call.lost, call.absents) == (1, 1, 1)


def test_of_absences_those_that_a_verdict_states_of_an_earlier_owners_call_are_losses() -> None:
    """A crash is counted as one, a failure in a process that lives never."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a", recovery=Recovery.LOOKUP))
    verdict = Cause("runfold.control", 3, 7)
    expected = []
    for epoch, cause in ((0, None), (0, verdict), (5, None), (9, verdict)):
        request = run.next.request("a", Why.ABSENT, recovery=Recovery.LOOKUP)
        run.do(replace(request, epoch=epoch, cause=cause))
        expected.append((run.call("a").lost, run.call("a").absents))
    assert expected == [(0, 1), (0, 2), (0, 3), (1, 3)]


def test_a_call_in_doubt_keeps_its_step_and_its_wait_is_named_by_it() -> None:
    """``resolve`` names the step; "absent" lets it run again with the same key."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    doubt = run.do(run.next.doubt("a"))
    assert (doubt.step, doubt.wait_id, run.state.step) == (2, "run-8c1:2", 2)
    run.do(run.next.resume("run-8c1:2", "absent"))
    again = run.do(run.next.request("a", Why.ABSENT))
    assert (again.step, again.attempt, again.idempotency_key) == (2, 2, "run-8c1:2")
    run.do(run.next.doubt("a"))
    assert list(run.state.waits) == ["run-8c1:2"]


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (Source.OPERATOR, Outcome.SUCCESS),
        (Source.OPERATOR, Outcome.FAILED),
        (Source.RECONCILED, Outcome.SUCCESS),
        (Source.CALL, Outcome.SUCCESS),
    ],
)
def test_a_call_in_doubt_may_return_after_all(source: Source, outcome: Outcome) -> None:
    """By a person's result or error, by a lookup, or by an outcome that survived; the wait is closed after it."""
    run = Run()
    run.turn("a")
    run.do(run.next.request("a"))
    run.do(run.next.doubt("a"))
    run.do(run.next.result("a", source, outcome))
    assert run.state.turn == []
    assert list(run.state.waits) == ["run-8c1:2"]
    run.do(run.next.resume("run-8c1:2"))
    assert run.state.waits == {}
    run.do(run.next.ask())


def test_an_operational_wait_takes_a_step_and_may_stand_anywhere() -> None:
    """An error in the middle of a turn; the turn's calls go on taking theirs."""
    run = Run()
    run.turn("a", "b")
    run.do(run.next.request("a"))
    stop = run.do(run.next.interrupt())
    assert (stop.step, stop.wait_id) == (3, "run-8c1:3")
    run.do(run.next.result("a"))
    run.do(run.next.resume("run-8c1:3"))
    assert run.do(run.next.request("b")).step == 4


def test_a_resumed_error_forgets_losses_and_failures() -> None:
    """Somebody has looked at it: crashes and failures count from here, and the model may be asked again."""
    run = Run()
    run.do(run.next.ask())
    run.do(run.next.ask(Why.TAKEOVER))
    run.do(run.next.model_failed())
    stop = run.do(run.next.interrupt())
    run.do(run.next.resume(stop.wait_id))
    call = run.state.model_call
    assert call is not None
    assert (call.lost, call.failures, call.retry_at) == (0, 0, 0)
    run.do(run.next.ask(Why.RETRY))
    run.do(run.next.answer("a"))
    run.do(run.next.request("a"))
    run.do(run.next.request("a", Why.TAKEOVER))
    stop = run.do(run.next.interrupt())
    run.do(run.next.resume(stop.wait_id))
    assert run.call("a").lost == 0


def test_lifting_another_wait_does_not_forget_a_failure() -> None:
    """A version mismatch that an executor lifts by itself says nothing of the model's failure."""
    run = Run()
    run.do(run.next.ask())
    run.do(run.next.ask(Why.TAKEOVER))
    run.do(run.next.model_failed())
    stop = run.do(run.next.interrupt(WaitReason.VERSION_MISMATCH))
    run.do(run.next.resume(stop.wait_id))
    call = run.state.model_call
    assert call is not None
    assert (call.lost, call.failures, call.retry_at) == (1, 1, None)


def test_model_calls_are_asked_again_under_the_same_step() -> None:
    """Lost ones count as spend that nobody knows; failed ones count as failures."""
    run = Run()
    run.do(run.next.ask())
    run.do(run.next.model_failed(retry_at=7))
    run.do(run.next.ask(Why.RETRY))
    run.do(run.next.ask(Why.STALE))
    run.do(run.next.ask(Why.TAKEOVER))
    call = run.state.model_call
    assert call is not None
    assert (call.step, call.attempt, call.failures, call.lost, call.is_open) == (1, 4, 1, 1, True)
    assert run.state.unaccounted_calls == 1
    run.do(run.next.answer())
    assert run.state.model_call is None


def test_usage_and_cost_add_up() -> None:
    """Tokens by name; a completion without a known price is counted apart."""
    run = Run()
    run.turn("a")
    run.do(run.next.refuse("a"))
    run.do(run.next.ask())
    run.do(run.next.answer(cost=None))
    assert run.state.usage == {"input_tokens": 20, "output_tokens": 4}
    assert (run.state.cost_nano_usd, run.state.unpriced_calls) == (5, 1)


@pytest.mark.parametrize(
    ("most", "too_much"),
    [
        ({"usage": (("input_tokens", 2**63 - 11),)}, {"usage": (("input_tokens", 2**63 - 10),)}),
        ({"cost_nano_usd": 2**63 - 6}, {"cost_nano_usd": 2**63 - 5}),
        ({"cost_nano_usd": -(2**63) - 5}, {"cost_nano_usd": -(2**63) - 6}),
        ({"usage": ()}, {"usage": (("input_tokens", 2**64),)}),
    ],
)
def test_what_no_snapshot_could_hold_is_refused(most: dict[str, Any], too_much: dict[str, Any]) -> None:
    """Folded, it would stop the whole partition's compactor."""
    run = Run()
    run.turn("a")
    run.do(run.next.refuse("a"))
    run.do(run.next.ask())
    run.refuses(replace(run.next.answer(), **too_much), "usage or cost out of 64 bits")
    run.do(replace(run.next.answer(), **most))
    encode_state(run.state)


def test_an_unknown_agent_is_stamped_later() -> None:
    """``version_changed`` brings the first message; then the model may be asked."""
    run = Run(started(first_message=None))
    run.refuses(run.next.ask(), "before the first message")
    stop = run.do(run.next.interrupt(WaitReason.UNKNOWN_AGENT))
    run.do(run.next.resume(stop.wait_id))
    run.do(run.next.version(VERSION, first_message=QUESTION))
    assert run.state.version == VERSION
    assert run.do(run.next.ask()).step == 2


def _changed(run: Run) -> None:
    run.do(run.next.version(replace(VERSION, revision="r2")))


def _model_asked(run: Run) -> None:
    run.do(run.next.ask())


@pytest.mark.parametrize("drive", [_changed, _model_asked])
@pytest.mark.parametrize("reason", [WaitReason.VERSION_MISMATCH, WaitReason.ERROR])
def test_accepting_a_version_holds_until_the_run_is_driven(reason: WaitReason, drive: Callable[[Run], None]) -> None:
    """An operator looked at the version that runs now, not at whatever is deployed next month."""
    run = Run()
    stop = run.do(run.next.interrupt(reason))
    run.do(run.next.resume(stop.wait_id, accept=True))
    seen = [run.state.accept_version]
    drive(run)
    seen.append(run.state.accept_version)
    assert seen == [True, False]


def test_used_tools_are_what_the_model_asked_for() -> None:
    """Unknown tools included: the version gate leaves out what no version knew."""
    run = Run()
    run.turn("a/1", "a/2", "ghost")
    assert run.state.used_tools == {"a", "ghost"}


@pytest.mark.parametrize("event", ["complete", "fail"])
def test_a_quiet_run_may_end(event: str) -> None:
    """Completed with its output, failed with its error."""
    run = Run()
    run.turn()
    run.do(run.next.complete() if event == "complete" else run.next.fail())
    assert run.state.ended is (Status.COMPLETED if event == "complete" else Status.FAILED)
    assert (run.state.output, run.state.error) in ((inline_json("done"), None), (None, "gave up"))


def test_a_cancelled_run_ends_with_what_nobody_knows() -> None:
    """Gates and waits are closed with it; calls in doubt stay visible by their keys."""
    run = Run()
    run.turn("a", "b")
    run.do(run.next.request("a"))
    run.do(run.next.gate("b"))
    run.do(run.next.cancel())
    run.refuses(run.next.cancelled(), "while a call is open")
    run.do(run.next.doubt("a"))
    run.do(run.next.cancelled("run-8c1:2"))
    assert (run.state.ended, run.state.open_keys, run.state.waits) == (Status.CANCELLED, ("run-8c1:2",), {})


def test_the_run_keeps_the_explicit_ids_of_its_inputs() -> None:
    """Default ids need no storage."""
    run = Run(replace(started(), cause=Cause("requests", 0, 3, "order-7")))
    run.do(replace(run.next.cancel(), cause=Cause("requests", 0, 4)))
    assert run.state.seen_ids == {"order-7"}


def test_a_reused_tool_call_id_means_the_call_of_the_open_turn() -> None:
    """Providers may use an id again in a later completion, or leave it empty."""
    run = Run()
    for step in (2, 4):
        run.turn("")
        assert run.do(run.next.request("")).step == step
        late = run.next.result("")
        run.do(run.next.result(""))
        run.refuses(replace(late, seq=run.state.seq + 1))


def test_a_signal_wait_takes_a_step() -> None:
    """Waits of later issues fold already, and are closed by their reason."""
    run = Run()
    wait = run.do(
        Interrupted(
            **run.next.shared, step=1, wait_id="run-8c1:1", reason=WaitReason.AWAITING_SIGNAL, detail=inline_json({})
        )
    )
    run.refuses(replace(run.next.resume(wait.wait_id), reason=WaitReason.TIMER), "which is not open")
    run.do(run.next.resume(wait.wait_id))
    assert run.do(run.next.ask()).step == 2


def test_folding_the_recorded_events_again_gives_the_same_state() -> None:
    """Field by field."""
    run = Run()
    run.turn("a", "b", "c")
    run.do(run.next.request("a", recovery=Recovery.RERUN))
    gate = run.do(run.next.gate("b"))
    run.do(run.next.refuse("c"))
    run.do(run.next.doubt("a"))
    run.do(run.next.resume(gate.wait_id, "rejected"))
    run.do(run.next.deny("b"))
    assert refold(run.events) == run.state
