"""Writes the golden log of this release: `python -m tests.replay.make_golden_log NAME`. It never overwrites one.

A golden log is what one partition's log held: records that a release of Runfold wrote, valid and void ones. Every
later release must fold it to the stored result. Make a new one when the log can say something new.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from runfold.codec import log
from runfold.core import drafts
from runfold.core.events import (
    AskedCall,
    CancelRequested,
    Cause,
    Event,
    InputSettled,
    LogRecordBody,
    ModelCallFailed,
    ModelResponded,
    Outcome,
    PartitionClaimed,
    Recovery,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    Settlement,
    Source,
    StatePatched,
    Version,
    VersionChanged,
    WaitReason,
    Why,
)
from runfold.core.payload import BlobRef, Payload, inline_json
from runfold.core.state import State
from runfold.core.transitions import fold
from tests.replay.replaying import FOLDER, replay, result_of

VERSION = Version("3f2c1ab", "p" * 64, "t" * 64, "openai:gpt-5", (("create_ticket", "a" * 64), ("search", "b" * 64)))
REQUESTS, APPROVALS, CONTROL = "runfold.requests", "runfold.approvals", "runfold.control"


class Writer:
    """One partition's log, and the writer in charge of it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.epoch = -1
        self.states: dict[str, State] = {}

    def append(self, record: LogRecordBody) -> None:
        """Append one record as it is, valid or not."""
        head, value = log.encode(record)
        line = {"key": log.key_of(record), "head": head.hex(), "value": value.hex()}
        self.lines.append(json.dumps(line))

    def claim(self, owner: str) -> None:
        """Take the partition over."""
        self.epoch = len(self.lines)
        self.append(PartitionClaimed(owner=owner, revision="3f2c1ab", nonce=f"{owner}-{self.epoch}", at=self.now))

    def settle(self, cause: Cause, outcome: Settlement, run_id: str, reason: str | None = None) -> None:
        """Settle an input that causes no event."""
        self.append(
            InputSettled(epoch=self.epoch, at=self.now, cause=cause, outcome=outcome, run_id=run_id, reason=reason)
        )

    @property
    def now(self) -> int:
        """A clock that ticks with the log."""
        return 1_767_323_045_678 + 1_000 * len(self.lines)

    def stamp(self, cause: Cause | None = None) -> drafts.Stamp:
        """Give the facts of the moment."""
        return drafts.Stamp(self.epoch, self.now, cause)

    def do(self, event: Event) -> None:
        """Append and fold a valid event."""
        self.states[event.run_id] = fold(self.states.get(event.run_id), event)
        self.append(event)

    def start(self, run_id: str, agent: str, cause: Cause, *, known: bool = True) -> State:
        """Start a run, whose agent is known or not."""
        self.do(
            RunStarted(
                run_id=run_id,
                seq=0,
                epoch=self.epoch,
                at=self.now,
                cause=cause,
                agent=agent,
                input=inline_json({"question": "Why?"}),
                version=VERSION if known else Version(),
                first_message=inline_json("Why?") if known else None,
            )
        )
        return self.states[run_id]

    def answer(self, state: State, *calls: AskedCall, cost: int | None = 1_250_000) -> None:
        """Let the open model call be answered."""
        call = state.model_call
        assert call is not None
        text = {"part_kind": "text", "content": f"step {call.step}"}
        self.do(
            ModelResponded(
                **drafts.envelope(state, self.stamp()),
                step=call.step,
                attempt=call.attempt,
                message=inline_json([{"kind": "response", "parts": [text]}]),
                message_format="pydantic-ai/1",
                tool_calls=calls,
                finish_reason="stop",
                usage=(("input_tokens", 100), ("output_tokens", 10)),
                cost_nano_usd=cost,
                model="gpt-5-2025-08-07",
            )
        )

    def ask(self, state: State, why: Why = Why.FIRST) -> None:
        """Ask the model."""
        self.do(drafts.model_call(state, self.stamp(), why, inline_json({"model": "openai:gpt-5"})))

    def request(self, state: State, call_id: str, why: Why = Why.FIRST, recovery: Recovery = Recovery.KEYED) -> None:
        """Execute a call of the open turn."""
        call = next(call for call in state.turn if call.asked.tool_call_id == call_id)
        stamp = self.stamp()
        memory: dict[str, Any] = {"key_ttl_ms": 86_400_000} if recovery is Recovery.KEYED else {"settle_ms": 30_000}
        arguments = inline_json({"q": call_id})
        self.do(drafts.tool_call(state, stamp, call, why, arguments, recovery, 10_000, **memory))

    def result(
        self,
        state: State,
        call_id: str,
        source: Source = Source.CALL,
        outcome: Outcome = Outcome.SUCCESS,
        *,
        patch: Payload | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Return from a call of the open turn."""
        call = next(call for call in state.turn if call.asked.tool_call_id == call_id)
        found: Payload = inline_json({"of": call_id}) if call_id != "big" else BlobRef("c" * 64, 200_000)
        self.do(drafts.tool_returned(state, self.stamp(cause), call, source, outcome, found, patch=patch))


def asked(*ids: str) -> tuple[AskedCall, ...]:
    """Name calls as a model does."""
    return tuple(AskedCall(call_id, "search", inline_json({"q": call_id})) for call_id in ids)


def main_run(w: Writer) -> None:
    """A model retry, parallel tools, a patch, a gate over a take-over with a zombie, a doubt that is resolved."""
    state = w.start("run-8c1", "research", Cause(REQUESTS, 3, 0))
    w.ask(state)
    call = state.model_call
    assert call is not None
    failed: dict[str, Any] = {
        "step": call.step,
        "attempt": call.attempt,
        "error": "status 503",
        "retry_at": w.now + 200,
    }
    w.do(ModelCallFailed(**drafts.envelope(state, w.stamp()), **failed))
    w.ask(state, Why.RETRY)
    w.answer(state, *asked("a", "b", "bad", "big"))
    w.request(state, "a")
    w.request(state, "b")
    w.result(state, "bad", Source.INVALID, Outcome.RETRIED)
    w.request(state, "big")
    w.result(state, "b", patch=inline_json({"seen": 1}))
    w.request(state, "a", Why.RETRY)
    w.result(state, "big")
    w.result(state, "a", patch=inline_json({"found": True}))
    for index, (step, key, value) in enumerate(((2, "found", True), (3, "seen", 1))):
        patched: dict[str, Any] = {"step": step, "key": key, "value": inline_json(value), "remaining": 1 - index}
        w.do(StatePatched(**drafts.envelope(state, w.stamp()), **patched))
    w.ask(state)
    w.answer(state, *asked("gated"), cost=None)
    gated = state.turn[0]
    w.do(drafts.approval_gate(state, w.stamp(), gated, inline_json({"q": "gated"}), "Really?", {"words": 9}))
    zombie(w, state)
    w.claim("executor-3")
    approval = Cause(APPROVALS, 3, 7, "approval-1")
    (wait,) = state.waits.values()
    w.do(drafts.resumed(state, w.stamp(approval), wait, by="dana@example.com", decision="approved", comment="fine"))
    w.settle(Cause(APPROVALS, 3, 8), Settlement.DUPLICATE, "run-8c1")
    w.settle(approval, Settlement.DEAD, "run-8c1", "not_open")  # void: it is settled already
    w.request(state, "gated", recovery=Recovery.MANUAL)
    w.claim("executor-4")
    w.do(drafts.doubt(state, w.stamp(), state.turn[0], "the process is gone"))
    (wait,) = state.waits.values()
    w.do(drafts.resumed(state, w.stamp(Cause(REQUESTS, 3, 4)), wait, by="ops", decision="absent"))
    w.request(state, "gated", Why.ABSENT, Recovery.MANUAL)
    w.do(drafts.doubt(state, w.stamp(), state.turn[0], "a time-out"))
    w.result(state, "gated", Source.OPERATOR, cause=Cause(REQUESTS, 3, 5))
    (wait,) = state.waits.values()
    w.do(drafts.resumed(state, w.stamp(), wait))
    w.ask(state)
    w.answer(state)
    w.do(RunCompleted(**drafts.envelope(state, w.stamp()), output=inline_json("Because.")))


def zombie(w: Writer, state: State) -> None:
    """A new owner claims; what the old one still writes, and what skips a ``seq``, is void."""
    stale = w.epoch
    w.claim("executor-2")
    late = drafts.interruption(state, drafts.Stamp(stale, w.now), WaitReason.ERROR, {"error": "from the zombie"})
    w.append(late)
    w.append(replace(late, seq=late.seq + 1))
    w.append(replace(late, epoch=w.epoch, seq=late.seq + 1))


def other_runs(w: Writer) -> None:
    """An agent that became known, a run that was cancelled with a key in doubt, one that waits."""
    late = w.start("late.agent", "unknown", Cause(REQUESTS, 3, 1), known=False)
    w.do(drafts.interruption(late, w.stamp(), WaitReason.UNKNOWN_AGENT, {"agent": "unknown"}))
    (wait,) = late.waits.values()
    w.do(drafts.resumed(late, w.stamp(), wait))
    w.do(
        VersionChanged(
            **drafts.envelope(late, w.stamp()),
            old=Version(),
            new=VERSION,
            policy=(("agent", "stamped"),),
            first_message=inline_json("Why?"),
        )
    )
    w.ask(late)
    w.answer(late, *asked("rejected"))
    w.do(drafts.approval_gate(late, w.stamp(), late.turn[0], inline_json({}), None, {}))
    w.settle(Cause(REQUESTS, 3, 2), Settlement.FORWARDED, "elsewhere")
    gone = w.start("gone", "research", Cause(CONTROL, 3, 0, "runfold.requests/1/9"))
    w.ask(gone)
    w.answer(gone, *asked("mail"))
    w.request(gone, "mail", recovery=Recovery.MANUAL)
    w.do(drafts.doubt(gone, w.stamp(), gone.turn[0], "a time-out"))
    cancel: dict[str, Any] = {"reason": "no longer needed", "requested_by": "ops"}
    w.do(CancelRequested(**drafts.envelope(gone, w.stamp(Cause(REQUESTS, 3, 3))), **cancel))
    w.do(RunCancelled(**drafts.envelope(gone, w.stamp()), reason="no longer needed", open_keys=("gone:2",)))
    failed = w.start("failed", "research", Cause(REQUESTS, 3, 6))
    w.do(drafts.interruption(failed, w.stamp(), WaitReason.ERROR, {"error": "the planner raised"}))
    (wait,) = failed.waits.values()
    w.do(drafts.resumed(failed, w.stamp(Cause(REQUESTS, 3, 7, "again")), wait, by="ops"))
    w.do(RunFailed(**drafts.envelope(failed, w.stamp()), error="the planner gave up"))


def main(name: str) -> None:
    """Write ``<name>.jsonl`` and the result that it must fold to."""
    writer = Writer()
    parts: list[Callable[[Writer], None]] = [lambda w: w.claim("executor-1"), other_runs, main_run]
    for part in parts:
        part(writer)
    with (FOLDER / f"{name}.jsonl").open("x", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in writer.lines)
    with (FOLDER / f"{name}.result.json").open("x", encoding="utf-8") as out:
        json.dump(result_of(replay(FOLDER / f"{name}.jsonl")), out, indent=2)
        out.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
