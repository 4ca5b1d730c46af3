"""Random runs: whatever happens, in whatever order, the invariants of a run hold and it can still end."""

from __future__ import annotations

import copy
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runfold.core.decisions import NOTHING, OpenCalls, decide, is_sequential, openable, status
from runfold.core.errors import IllegalTransition
from runfold.core.events import (
    Event,
    Interrupted,
    ModelCallFailed,
    ModelCallRequested,
    ModelResponded,
    Outcome,
    Source,
    ToolCallRequested,
    ToolReturned,
    WaitReason,
    Why,
)
from runfold.core.payload import inline_json
from runfold.core.policy import lost_too_often
from runfold.core.state import Call, EntryKind, ModelCall, Phase, State, Status, Wait
from runfold.core.transitions import fold
from tests.unit.core.building import VERSION, Run, refold, started, with_seq
from tests.unit.core.shell import SEQUENTIAL, Shell

COMPLETION = (
    st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5])
    .flatmap(lambda size: st.lists(st.sampled_from("aaaggsx"), min_size=size, max_size=size))
    .map(lambda tools: [f"{tool}/{index}" for index, tool in enumerate(tools)])
)
ACTS = ["drive"] * 3 + ["answer"] * 6 + ["again"] * 2 + ["disturb"] + ["repeat"] * 2
AGAIN = [Why.RETRY, Why.TAKEOVER, Why.STALE, Why.ABSENT]
PATCH = inline_json({"m": 1, "n": 2})
ANY = st.integers(0, 1_000)


class Runs(RuleBasedStateMachine):
    """One run in a world that does as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(started())
        self.steps = [0]
        self.disturbed = 0

    @property
    def state(self) -> State:
        """The run."""
        return self.shell.state

    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.state.ended is None

    @initialize(known=st.sampled_from([True, True, True, False]))
    def start(self, known: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        """Start, with an agent that is known or not."""
        if not known:
            self.shell = Shell(started(first_message=None))
            self.shell.do(self.shell.next.interrupt(WaitReason.UNKNOWN_AGENT))

    # One rule, since Hypothesis switches rules off for whole examples, and without its shell or its world no run moves.

    @rule(act=st.sampled_from(ACTS), which=ANY, number=st.integers(0, 5), data=st.data())
    def act(self, act: str, which: int, number: int, data: st.DataObject) -> None:
        """Let the shell, the world, or something that disturbs them act."""
        if not self.alive():
            return
        match act:
            case "drive":
                self.shell.perform(decide(self.state), crash_after=number + 1)
            case "answer" if self.world():
                answers = self.world()
                self.answer(answers[which % len(answers)], number, data)
                self.shell.perform(decide(self.state))
            case "again":
                self.try_again(which, data.draw(st.sampled_from(AGAIN)), doubt=number == 0)
            case "repeat":
                self.append_an_old_event_again(which, pretend=number % 2 == 0)
            case "disturb" if self.state.has_first_message and self.state.seq > self.disturbed + 6:
                self.disturb(number)
            case _:
                pass

    def answer(self, answered: Call | Wait | ModelCall, number: int, data: st.DataObject) -> None:
        """The model completes or fails, a tool returns (in doubt or not), a person closes a wait."""
        if isinstance(answered, Call):
            patch = PATCH if number % 3 == 0 else None
            outcome = Outcome.FAILED if number == 1 else Outcome.SUCCESS
            self.shell.do(self.shell.next.result(answered.asked.tool_call_id, Source.CALL, outcome, patch))
        elif isinstance(answered, Wait):
            self.shell.close(answered, number)
        elif number < 4:
            self.shell.do(self.shell.next.answer(*data.draw(COMPLETION)))
        else:
            self.shell.do(self.shell.next.model_failed(retry_at=None if number == 4 else 9))

    def world(self) -> list[Call | Wait | ModelCall]:
        """List what the world may answer."""
        if not self.alive():
            return []
        phases = (Phase.REQUESTED, Phase.IN_DOUBT)
        calls = [call for call in self.state.turn if call.phase in phases]
        model = [self.state.model_call] if self.state.model_call is not None and self.state.model_call.is_open else []
        return [*model, *calls, *self.state.waits.values()]

    def try_again(self, which: int, why: Why, *, doubt: bool) -> None:
        """What is open is requested again, by this owner or another, or given up, as reason and rules demand."""
        if why is Why.TAKEOVER:
            self.shell.epoch += 1
        calls = self.state.open_calls()
        if self.shell.model_is_open():
            self._ask_again(Why.STALE if why is Why.STALE else Why.TAKEOVER)
        elif calls:
            self._execute_again(calls[which % len(calls)], why, doubt=doubt)

    def _ask_again(self, why: Why) -> None:
        call = self.state.model_call
        if why is Why.TAKEOVER and self.state.cancel_reason is not None:
            self.shell.do(self.shell.next.model_failed())
        elif why is Why.STALE or (call is not None and not lost_too_often(call)):
            self.shell.do(self.shell.next.ask(why))
        elif self.state.operational_wait() is None:
            self.shell.do(self.shell.next.interrupt())

    def _execute_again(self, call: Call, why: Why, *, doubt: bool) -> None:
        if doubt or self.state.cancel_reason is not None or lost_too_often(call):
            self.shell.do(self.shell.next.doubt(call.asked.tool_call_id))
        else:
            self.shell.do(self.shell.request(call, why))

    def disturb(self, number: int) -> None:
        """Not all the time: a cancel, a planner that raises, a version that differs, one that is accepted."""
        self.disturbed = self.state.seq
        if number == 0 and self.state.cancel_reason is None:
            self.shell.do(self.shell.next.cancel())
        elif number == 1:
            self.shell.do(self.shell.next.version(replace(VERSION, revision=f"r{self.state.seq}")))
        elif self.state.operational_wait() is None:
            reason = WaitReason.ERROR if number % 2 else WaitReason.VERSION_MISMATCH
            self.shell.do(self.shell.next.interrupt(reason))

    # --- what must not happen -----------------------------------------------------------------------------------

    def append_an_old_event_again(self, which: int, *, pretend: bool) -> None:
        """As it was: refused. With the seq that fits: legal or not; if not, nothing has changed."""
        event = self.shell.events[which % len(self.shell.events)]
        if not pretend:
            self.shell.refuses(event)
            return
        before = copy.deepcopy(self.state)
        after = copy.deepcopy(self.state)
        try:
            fold(after, with_seq(self.state, event))
        except IllegalTransition:
            assert after == before

    # --- invariants ---------------------------------------------------------------------------------------------

    @invariant()
    def seq_has_no_hole(self) -> None:
        """From 0 on."""
        assert self.state.seq == len(self.shell.events) - 1 == self.shell.events[-1].seq

    @invariant()
    def steps_only_grow(self) -> None:
        """By one for what took a step since, by two for a gate and its call."""
        self.steps.append(self.state.step)
        assert self.steps[-1] >= self.steps[-2]

    @invariant()
    def waits_and_phases_agree(self) -> None:
        """Each gated or doubted call has its wait, each such wait its call (or one that has returned meanwhile)."""
        if not self.alive():
            return
        for call in self.state.turn:
            if call.phase is Phase.GATED:
                assert self.state.waits[str(call.approval_id)].step == call.step - 1
            if call.phase is Phase.IN_DOUBT:
                assert self.state.waits[self.state.key(call.step)].reason is WaitReason.INDETERMINATE
            assert (call.step > 0) == (call.phase is not Phase.ASKED)
            assert (call.entry is not None) == (call.phase is Phase.RETURNED)
        for wait in self.state.waits.values():
            if wait.reason is WaitReason.AWAITING_APPROVAL:
                gated = self.state.call_at(wait.step + 1)
                assert gated is not None
                assert gated.phase is Phase.GATED

    @invariant()
    def it_is_never_stuck(self) -> None:
        """Something is open, or decidable, or waited for; or the run has ended."""
        open_now = self.shell.model_is_open() or bool(self.state.open_calls())
        moving = open_now or bool(self.state.waits) or not self.alive()
        decision = decide(self.state)
        if isinstance(decision, OpenCalls):
            sequential = is_sequential(self.state.turn, SEQUENTIAL)
            assert openable(decision.calls, sequential=sequential) or moving
        else:
            assert decision != NOTHING or moving
        told = status(self.state)
        held = self.state.operational_wait() is not None and self.state.cancel_reason is None
        still = bool(self.state.waits) and decision == NOTHING
        assert (told is Status.WAITING) <= (still and (held or not open_now))
        assert (told in (Status.RUNNING, Status.WAITING)) == self.alive()

    def teardown(self) -> None:
        """A kind world lets the run end; its events fold to the same state again; its history is sound."""
        self.shell.finish()
        assert refold(self.shell.events) == self.state
        check_history(self.shell)


def check_history(run: Run) -> None:
    """Steps belong to one call each, keys to one step; at most one model call is open; results stand in call order."""
    owners: dict[int, str] = {}
    open_model = False
    completions: list[list[str]] = []
    for event in run.events:
        owner = owner_of(event)
        if owner is not None:
            step, name = owner
            assert 0 < step <= run.state.step
            assert owners.setdefault(step, f"{name} of turn {len(completions)}") == f"{name} of turn {len(completions)}"
        match event:
            case ModelCallRequested():
                assert open_model == (event.why in (Why.TAKEOVER, Why.STALE))
                open_model = True
            case ModelResponded() | ModelCallFailed():
                assert open_model
                open_model = False
            case ToolCallRequested():
                assert event.idempotency_key == f"{event.run_id}:{event.step}"
            case _:
                pass
        if isinstance(event, ModelResponded):
            completions.append([call.tool_call_id for call in event.tool_calls])
    assert len(set(owners.values())) == len(owners)
    order = [entry.tool_call_id for entry in run.state.transcript if entry.kind is EntryKind.TOOL]
    assert order == [call for calls in completions for call in calls][: len(order)]


def owner_of(event: Event) -> tuple[int, str] | None:
    """Say which step an event belongs to, and whose step that is."""
    match event:
        case ModelCallRequested() | ModelResponded() | ModelCallFailed():
            return event.step, "model"
        case ToolCallRequested() | ToolReturned() | Interrupted(reason=WaitReason.INDETERMINATE):
            return event.step, f"call {event.tool_call_id}"
        case Interrupted(reason=WaitReason.AWAITING_APPROVAL):
            return event.step, f"gate {event.tool_call_id}"
        case Interrupted():
            return event.step, f"wait {event.seq}"
        case _:
            return None


TestRuns = Runs.TestCase
TestRuns.settings = settings(stateful_step_count=70)
