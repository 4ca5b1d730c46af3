"""A model of the shell: it performs decisions and lets the world answer, without servers, tasks or clocks.

The tools are told apart by the first letter of a call's id, which is its tool's name too: ``a`` ordinary, ``g`` gated,
``s`` sequential, ``x`` unknown to the agent or called with invalid arguments.
"""

from __future__ import annotations

from runfold.core.decisions import (
    CallModel,
    Cancel,
    CloseWait,
    Decision,
    Deny,
    Fail,
    Finish,
    Nothing,
    OpenCalls,
    Patch,
    RequestCall,
    Stop,
    decide,
    is_sequential,
    openable,
)
from runfold.core.events import Outcome, Recovery, Source, ToolCallRequested, WaitReason, Why
from runfold.core.state import OPERATIONAL, Call, Phase, Wait
from tests.unit.core.building import QUESTION, VERSION, Run

SEQUENTIAL = frozenset({"s"})
RECOVERIES = tuple(Recovery)


class Shell(Run):
    """Drives one run."""

    def perform(self, decision: Decision, crash_after: int = 99) -> bool:  # noqa: C901 - one case per decision
        """Append what a decision asks for; of a batch, the first ``crash_after`` events. False: nothing to append."""
        match decision:
            case Nothing():
                return False
            case CallModel(why=why):
                self.do(self.next.ask(why))
            case OpenCalls(calls=calls):
                sequential = is_sequential(self.state.turn, SEQUENTIAL)
                return self._open(openable(calls, sequential=sequential)[:crash_after])
            case RequestCall(call=call, why=why):
                self.do(self.request(call, why))
            case Deny(call=call):
                self.do(self.next.deny(call.asked.tool_call_id))
            case Patch():
                self._patch(crash_after)
            case CloseWait(wait=wait):
                self.do(self.next.resume(wait.wait_id))
            case Stop():
                self.do(self.next.interrupt())
            case Finish():
                self.do(self.next.complete())
            case Fail():
                self.do(self.next.fail())
            case Cancel(open_keys=keys):
                self.do(self.next.cancelled(*keys))
        return True

    def request(self, call: Call, why: Why) -> ToolCallRequested:
        """Make the next attempt; the recovery class follows from the call's id."""
        recovery = call.recovery or RECOVERIES[len(self.events) % len(RECOVERIES)]
        alone = is_sequential(self.state.turn, SEQUENTIAL)
        return self.next.request(call.asked.tool_call_id, why, recovery=recovery, alone=alone)

    def _open(self, calls: tuple[Call, ...]) -> bool:
        for call in calls:
            name = call.asked.tool_call_id
            if call.asked.tool == "x":
                self.do(self.next.refuse(name))
            elif call.asked.tool == "g":
                self.do(self.next.gate(name, alone=is_sequential(self.state.turn, SEQUENTIAL)))
            else:
                self.do(self.request(call, Why.FIRST))
        return bool(calls)

    def _patch(self, crash_after: int) -> None:
        """Every patch of these tests has two keys."""
        changes = [(step, key) for step, _ in self.state.due_patches for key in ("m", "n")]
        for index in list(range(len(changes)))[self.state.applied_patches :][: max(1, crash_after)]:
            step, key = changes[index]
            self.do(self.next.patched(step, key, index, remaining=len(changes) - index - 1))

    # --- the world ----------------------------------------------------------------------------------------------

    def model_is_open(self) -> bool:
        """Whether a completion is awaited."""
        return self.state.model_call is not None and self.state.model_call.is_open

    def close(self, wait: Wait, how: int) -> None:
        """Let a person close a wait: approve or reject, resolve in one of three ways, resume."""
        if wait.reason is WaitReason.AWAITING_APPROVAL:
            self.do(self.next.resume(wait.wait_id, ("approved", "rejected")[how % 2]))
        elif wait.reason is WaitReason.INDETERMINATE:
            call = self.state.call_at(wait.step)
            if call is None or call.phase is not Phase.IN_DOUBT:
                return  # it has returned after all: the shell closes it
            if how % 3 == 0:
                self.do(self.next.resume(wait.wait_id, "absent"))
            else:
                outcome = (Outcome.SUCCESS, Outcome.FAILED)[how % 2]
                self.do(self.next.result(call.asked.tool_call_id, Source.OPERATOR, outcome))
        else:
            self.do(self.next.resume(wait.wait_id, accept=bool(how % 2)))
            if wait.reason is WaitReason.UNKNOWN_AGENT and not self.state.has_first_message:
                self.do(self.next.version(VERSION, first_message=QUESTION))

    def finish(self) -> None:
        """Let a kind world answer everything; the run has to end."""
        for how in range(400):
            if self.state.ended is not None:
                return
            if self.perform(decide(self.state)):
                continue
            waits = list(self.state.waits.values())
            if self.model_is_open():
                self.do(self.next.answer())
            elif self.state.open_calls():
                self.do(self.next.result(self.state.open_calls()[0].asked.tool_call_id))
            elif waits:
                self.close(next((wait for wait in waits if wait.reason in OPERATIONAL), waits[0]), how)
            else:
                self.do(self.next.version(VERSION, first_message=QUESTION))
        message = f"the run is stuck: {self.state}"
        raise AssertionError(message)
