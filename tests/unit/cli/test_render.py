"""What people are shown: tables that hold what matters, and what lifts each wait."""

from typing import Any

import pytest

from runfold.cli import render
from runfold.cli.words import counted, hashes_cut, lifts, short, why

AT = "2026-01-02T03:04:05.678Z"
HASH = "0123456789abcdef" * 4


def wait(reason: str, **fields: Any) -> dict[str, Any]:
    base = {"run_id": "run-8c1", "wait_id": "run-8c1:19", "reason": reason, "step": 19, "opened_at": AT}
    return {**base, "tool": None, "arguments": None, "detail": {}, **fields}


GATE = wait("awaiting_approval", tool="publish", arguments={"a": 1}, detail={"message": None})
DOUBT = wait("indeterminate", tool="pay", arguments={"a": 1}, detail={"error": "TimeoutError: " + "x" * 300})


def run(**fields: Any) -> dict[str, Any]:
    return {
        "run_id": "run-8c1",
        "agent": "research",
        "status": "waiting",
        "step": 19,
        "seq": 40,
        "partition": 3,
        "usage": {"input_tokens": 10},
        "cost_usd": 0.5,
        "unpriced_calls": 0,
        "unaccounted_calls": 1,
        "output": None,
        "error": None,
        "cancel_reason": None,
        "parked": None,
        "version": {"revision": "r1", "prompt_hash": HASH, "model": None},
        "started_at": AT,
        "updated_at": AT,
        **fields,
    }


def shown(capsys: pytest.CaptureFixture[str], what: str, value: Any) -> str:
    render.show(what, value)
    return capsys.readouterr().out


def test_long_values_are_cut_and_what_a_terminal_would_obey_is_escaped() -> None:
    assert len(short("x" * 500, 80)) == 80
    assert short({"a": "b"}) == '{"a": "b"}'
    assert short("a\x1b[2Jb") == "a\\x1b[2Jb"


def test_numbers_and_hashes() -> None:
    assert (counted(1, "call"), counted(2, "call")) == ("1 call", "2 calls")
    assert hashes_cut(f"sha256:{HASH}") == "sha256:0123456789ab"


def test_a_run_shows_what_it_waits_for_whole_and_the_command_that_lifts_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "run", run(waits=[GATE, DOUBT]))
    for part in ("run-8c1", "waiting", "$0.5000", "1 call unaccounted for", "prompt_hash 0123456789ab\n"):
        assert part in page
    assert "  next: `runfold approve run-8c1 run-8c1:19 --by NAME` or `runfold reject" in page
    assert "  next: `runfold resolve run-8c1 19 --by NAME --result JSON` (it happened)" in page
    assert page.count("x") >= 300, "an error is wrapped, not cut"


def test_a_cancelled_run_shows_a_reason_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "run", run(status="cancelled", cancel_reason="too dear", waits=[])).splitlines()
    assert "reason   too dear" in lines
    assert not any(line.startswith("error") for line in lines)


def test_a_list_says_why_runs_wait_and_that_one_is_parked(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "runs", [run(waiting_for=["awaiting_approval", "indeterminate"], parked="cannot be folded")])
    assert "awaiting_approval, indeterminate" in " ".join(page.split())
    assert "parked: cannot be folded" in " ".join(page.split())
    assert all(line == line.rstrip() for line in page.splitlines()), "what is piped has no padding"


def test_waits_show_why(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "waits", [wait("error", detail={"error": "the model said no"}), {**DOUBT, "detail": {}}])
    assert "the model said no" in page
    assert 'pay({"a": 1})' in page
    assert shown(capsys, "waits", []) == "nothing waits\n"


def test_waits_say_once_for_each_reason_what_lifts_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command where one waits for it, its form where several do; on one line, so that it can be copied."""
    held = wait("error", detail={"error": "the model said no"})
    lines = shown(capsys, "waits", [GATE, {**GATE, "run_id": "run-2", "wait_id": "run-2:19"}, held]).splitlines()
    assert lines[-2:] == [
        "awaiting_approval: `runfold approve RUN ID --by NAME` or `runfold reject RUN ID --by NAME`",
        "error: mend the cause, then `runfold resume run-8c1 --by NAME`",
    ]
    lines = shown(capsys, "waits", [GATE, DOUBT]).splitlines()
    gate = "run-8c1 run-8c1:19 --by NAME"
    assert lines[-2] == f"awaiting_approval: `runfold approve {gate}` or `runfold reject {gate}`"
    assert lines[-1].startswith("indeterminate: `runfold resolve run-8c1 19 --by NAME --result JSON` (it happened), ")


def test_a_call_in_doubt_shows_what_is_known_and_the_command_that_settles_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {
        "error": "2 lookups did not decide it",
        "idempotency_key": "run-8c1:19",
        "attempt": 2,
        "recovery": "lookup",
    }
    page = shown(capsys, "waits", [{**DOUBT, "detail": {**known, "requested_at": 1_767_323_045_678}}])
    said = " ".join(page.split())
    for part in ("2 lookups did not decide it", "key run-8c1:19, attempt 2, lookup", "runfold resolve run-8c1 19"):
        assert all(word in said for word in part.split()), part
    assert "2026-01-02" in said


def test_a_run_shows_who_decided_what(capsys: pytest.CaptureFixture[str]) -> None:
    decided = {"seq": 9, "at": AT, "step": 18, "decision": "absent", "by": "ops", "comment": None, "cause": {}}
    page = shown(capsys, "run", run(waits=[], decisions=[decided]))
    assert "2026-01-02 03:04:05 UTC: absent step 18, by ops\n" in page


@pytest.mark.parametrize(
    ("reason", "detail", "told", "command"),
    [
        ("version_mismatch", {"parts": {"prompt": {}, "model": {}}}, "prompt and model differ", "--accept-version"),
        ("unknown_agent", {"agent": "x"}, "no executor knows agent 'x'", "start an executor"),
        ("error", {"error": "boom"}, "boom", "mend the cause, then `runfold resume run-8c1 --by NAME`"),
    ],
)
def test_every_wait_says_why_and_what_lifts_it(reason: str, detail: Any, told: str, command: str) -> None:
    assert why(wait(reason, detail=detail)) == told
    assert command in lifts(wait(reason, detail=detail))


def test_the_state_shows_messages_as_text_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    message = {
        "parts": [
            {"part_kind": "text", "content": "I pay."},
            {"part_kind": "tool-call", "tool_name": "pay", "args": '{"a": 1}'},
        ]
    }
    call = {"tool": "pay", "arguments": {"a": 1}, "phase": "requested", "step": 18, "attempt": 1}
    transcript = [{"kind": "user", "seq": 0, "content": "Pay."}, {"kind": "response", "seq": 2, "content": [message]}]
    page = shown(capsys, "state", run(waits=[], values={}, turn=[call], transcript=transcript))
    assert 'I pay. · calls pay({"a": 1})' in page
    assert "part_kind" not in page
    assert "requested" in page


def test_dead_inputs_show_their_key_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"topic": "t", "partition": 1, "offset": 2, "at": AT, "reason": "wrong_key", "key": "run-1\n", "value": 1}
    assert "run-1" in shown(capsys, "dead", [{**row, "detail": "x"}])
