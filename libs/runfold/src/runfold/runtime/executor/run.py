"""One run in one tenure, as everything that moves it sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from runfold.core.policy import tool_backoff
from runfold.core.state import State
from runfold.ports.agents import Message, RunningAgent
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import EffectKey, EffectOutcome
from runfold.runtime.executor.mailbox import Action, Finished, Mailbox
from runfold.runtime.executor.tenure import Tenure, World

_SHORTEST_S = 0.001


@dataclass(slots=True)
class Run:
    """One run.

    Attributes:
        state: Folded from everything appended or being appended; None: no such run (yet).
        parked: Why this code cannot go on with it; its inputs wait.
        admitted: The version gate has let this code drive the run in this tenure.
        dangling: Requests of earlier epochs are still to be dealt with.
        messages: The transcript's bytes as far as they were needed, in order.
        stale_appends: How often in a row a step's request had to be appended again for want of freshness.
        lookup_tries: Lookups of an attempt that did not decide it.
        known_since: step -> when this process appended its first request, in seconds of ``Clock.elapsed``; a step that
            is not here was requested before the tenure's claim.
        certain_from: When an attempt of unknown outcome could certainly act no more, in seconds of ``Clock.elapsed``.
        paused_since: (step, attempt) of a failed model call -> since when it waits for its retry, in seconds of
            ``Clock.elapsed``.
        troubles: step -> what its last attempt of unknown outcome said.
        absent_upto: step -> attempts up to this one are known not to have happened.
        hung: Attempts that somebody has reported, while they were still being performed past their time.
        ended_effects: Effects whose outcome has been heard, and is perhaps not durable yet.
    """

    tenure: Tenure
    run_id: str
    state: State | None = None
    parked: str | None = None
    admitted: bool = False
    dangling: bool = False
    messages: list[Message] = field(default_factory=list)
    stale_appends: Counter[int] = field(default_factory=Counter)
    lookup_tries: dict[EffectKey, int] = field(default_factory=dict)
    known_since: dict[int, float] = field(default_factory=dict)
    certain_from: dict[EffectKey, float] = field(default_factory=dict)
    paused_since: dict[tuple[int, int], float] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)
    absent_upto: dict[int, int] = field(default_factory=dict)
    hung: set[EffectKey] = field(default_factory=set)
    ended_effects: set[EffectKey] = field(default_factory=set)
    mailbox: Mailbox = field(default_factory=Mailbox)

    @property
    def world(self) -> World:
        """The ports, and what was built on them."""
        return self.tenure.world

    @property
    def agent(self) -> RunningAgent | None:
        """The running code's agent, if it knows it."""
        return None if self.state is None else self.world.agents.get(self.state.agent)

    def batch(self) -> Batch:
        """Begin a batch of this run's events."""
        return Batch(self.tenure, self.state)

    def hear(self, key: EffectKey, outcome: EffectOutcome) -> None:
        """Be told of an effect's outcome."""
        self.ended_effects.add(key)
        self.mailbox.finish(Finished(key, outcome))

    def after(self, delay: float, action: Action) -> None:
        """Do something with a batch, ``delay`` seconds from now."""
        # Less than this can vanish in a clock's rounding: who asks again how long it still is would spin.
        self.mailbox.after(max(delay, _SHORTEST_S) if delay > 0 else 0.0, action)

    def after_backoff(self, retries: int, action: Action) -> None:
        """Do something after a tool's back-off."""
        self.after(tool_backoff(retries, self.world.chance.jitter()), action)


def look_again(_: Batch) -> None:
    """Add nothing: what is decidable is looked at after every action anyway."""
