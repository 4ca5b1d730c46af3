"""Builds runs for the tests of the core: ``Drafts`` makes the next event, ``Run`` also folds it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import pytest

from runfold.core import drafts
from runfold.core.errors import IllegalTransition
from runfold.core.events import (
    AskedCall,
    CancelRequested,
    Cause,
    Event,
    Interrupted,
    ModelCallFailed,
    ModelCallRequested,
    ModelResponded,
    Outcome,
    Recovery,
    Resumed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    Source,
    StatePatched,
    ToolCallRequested,
    ToolReturned,
    Version,
    VersionChanged,
    WaitReason,
    Why,
)
from runfold.core.payload import Payload, inline_json
from runfold.core.state import Call, State
from runfold.core.transitions import fold

RUN_ID = "run-8c1"
VERSION = Version(revision="r1", prompt_hash="p1", tools_hash="t1", model="test:m", tools=(("a", "sig-a"),))
QUESTION = inline_json("What is new?")
ARGUMENTS = inline_json({"title": "x"})


def started(*, seq: int = 0, first_message: Payload | None = QUESTION, run_id: str = RUN_ID) -> RunStarted:
    """Make the first event of a run."""
    return RunStarted(
        run_id=run_id,
        seq=seq,
        epoch=0,
        at=1,
        agent="research",
        input=QUESTION,
        version=VERSION if first_message is not None else Version(),
        first_message=first_message,
    )


E = TypeVar("E", bound=Event)


class Drafts:
    """Makes the next event of a state, legal unless it is told otherwise."""

    def __init__(self, state: State, epoch: int = 0, cause: Cause | None = None) -> None:
        self.state = state
        self.stamp = drafts.Stamp(epoch, 1_000 + state.seq, cause)
        self.shared = drafts.envelope(state, self.stamp)

    def call(self, tool_call_id: str) -> Call:
        """Find a call of the open turn; one that is not there is made up."""
        known = (call for call in self.state.turn if call.asked.tool_call_id == tool_call_id)
        return next(known, Call(AskedCall(tool_call_id, tool_call_id, ARGUMENTS)))

    def ask(self, why: Why = Why.FIRST) -> ModelCallRequested:
        """Ask the model."""
        return drafts.model_call(self.state, self.stamp, why, inline_json({"model": "test:m"}))

    def answer(self, *tools: str, cost: int | None = 5) -> ModelResponded:
        """Complete; each tool is called once, and its name is the id of its call. ``a/1`` calls ``a`` as ``a/1``."""
        step, attempt = self._model_step()
        return ModelResponded(
            **self.shared,
            step=step,
            attempt=attempt,
            message=inline_json({"seq": self.state.seq, "calls": list(tools)}),
            message_format="test.1",
            tool_calls=tuple(AskedCall(tool, tool.partition("/")[0], ARGUMENTS) for tool in tools),
            finish_reason="stop",
            usage=(("input_tokens", 10), ("output_tokens", 2)),
            cost_nano_usd=cost,
            model="test:m",
        )

    def model_failed(self, retry_at: int | None = None) -> ModelCallFailed:
        """Let the model call fail."""
        step, attempt = self._model_step()
        return ModelCallFailed(**self.shared, step=step, attempt=attempt, error="503", retry_at=retry_at)

    def _model_step(self) -> tuple[int, int]:
        call = self.state.model_call
        return (self.state.step, 1) if call is None else (call.step, call.attempt)

    def request(
        self,
        call: str,
        why: Why = Why.FIRST,
        arguments: Payload = ARGUMENTS,
        recovery: Recovery = Recovery.KEYED,
        *,
        alone: bool = False,
    ) -> ToolCallRequested:
        """Execute a tool; ``alone``: in a sequential turn."""
        asked = self.call(call)
        return drafts.tool_call(self.state, self.stamp, asked, why, arguments, recovery, 1_000, sequential=alone)

    def result(
        self,
        call: str,
        source: Source = Source.CALL,
        outcome: Outcome = Outcome.SUCCESS,
        patch: Payload | None = None,
    ) -> ToolReturned:
        """Return from a tool; the result names the call."""
        return drafts.tool_returned(
            self.state, self.stamp, self.call(call), source, outcome, inline_json({"of": call}), patch=patch
        )

    def deny(self, call: str) -> ToolReturned:
        """Tell the model that a person refused."""
        return self.result(call, Source.DENIED, Outcome.DENIED)

    def refuse(self, call: str) -> ToolReturned:
        """Tell the model that its arguments are invalid, or the tool unknown."""
        return self.result(call, Source.INVALID, Outcome.RETRIED)

    def gate(self, call: str, *, alone: bool = False) -> Interrupted:
        """Ask for an approval; ``alone``: in a sequential turn."""
        asked = self.call(call)
        return drafts.approval_gate(self.state, self.stamp, asked, ARGUMENTS, "please look", {}, sequential=alone)

    def doubt(self, call: str) -> Interrupted:
        """Declare a call indeterminate."""
        return drafts.doubt(self.state, self.stamp, self.call(call), "time-out")

    def interrupt(self, reason: WaitReason = WaitReason.ERROR) -> Interrupted:
        """Stop the whole run."""
        return drafts.interruption(self.state, self.stamp, reason, {"error": "planner"})

    def resume(self, wait_id: str, decision: str | None = None, *, accept: bool = False) -> Resumed:
        """Close a wait; one that is not open is called an approval."""
        wait = self.state.waits.get(wait_id)
        if wait is not None:
            return drafts.resumed(self.state, self.stamp, wait, by="dana", decision=decision, accept_version=accept)
        reason = WaitReason.AWAITING_APPROVAL
        return Resumed(**self.shared, step=1, wait_id=wait_id, reason=reason, by="dana", decision=decision)

    def patched(self, step: int, key: str, value: int, remaining: int = 0) -> StatePatched:
        """Set one key of the author's state."""
        return StatePatched(**self.shared, step=step, key=key, value=inline_json(value), remaining=remaining)

    def version(self, new: Version, first_message: Payload | None = None) -> VersionChanged:
        """Go on under another version."""
        return VersionChanged(
            **self.shared,
            old=self.state.version,
            new=new,
            policy=(("revision", "accept"),),
            first_message=first_message,
        )

    def cancel(self) -> CancelRequested:
        """Request a cancel."""
        return CancelRequested(**self.shared, reason="no longer needed", requested_by="ops")

    def complete(self) -> RunCompleted:
        """End with an output."""
        return RunCompleted(**self.shared, output=inline_json("done"))

    def fail(self) -> RunFailed:
        """End without an output."""
        return RunFailed(**self.shared, error="gave up")

    def cancelled(self, *open_keys: str) -> RunCancelled:
        """End at somebody's request."""
        return RunCancelled(**self.shared, reason="no longer needed", open_keys=open_keys)


class Run:
    """One run under test: its state, and the events that made it."""

    def __init__(self, first: RunStarted | None = None) -> None:
        first = started() if first is None else first
        self.state = fold(None, first)
        self.events: list[Event] = [first]
        self.epoch = 0

    @property
    def next(self) -> Drafts:
        """Makes the next event."""
        return Drafts(self.state, self.epoch)

    def do(self, event: E) -> E:
        """Fold an event that has to be legal."""
        assert fold(self.state, event) is self.state
        self.events.append(event)
        return event

    def turn(self, *tools: str) -> None:
        """Ask the model, which calls these tools."""
        self.do(self.next.ask())
        self.do(self.next.answer(*tools))

    def at_step(self, step: int) -> None:
        """Go on until ``step`` was the last one allotted, an odd one: model, tool, model, ..., model."""
        while True:
            self.do(self.next.ask())
            if self.state.step == step:
                return
            self.do(self.next.answer("look"))
            self.do(self.next.request("look"))
            self.do(self.next.result("look"))

    def call(self, tool_call_id: str) -> Call:
        """Find a call of the open turn."""
        return next(call for call in self.state.turn if call.asked.tool_call_id == tool_call_id)

    def refuses(self, event: Event, match: str = "seq") -> None:
        """See that an event is illegal and changes nothing."""
        before = copy.deepcopy(self.state)
        with pytest.raises(IllegalTransition, match=match):
            fold(self.state, event)
        assert self.state == before


def with_seq(state: State, event: Event) -> Event:
    """Give an event the sequence number and epoch that fit."""
    return replace(event, seq=state.seq + 1, epoch=state.epoch)


def refold(events: Iterable[Event]) -> State:
    """Fold recorded events from the beginning."""
    state: State | None = None
    for event in events:
        state = fold(state, event)
    assert state is not None
    return state
