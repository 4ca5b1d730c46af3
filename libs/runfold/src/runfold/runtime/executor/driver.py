"""One coroutine drives one run: it takes messages one at a time, decides, appends, and starts effects.

It never waits for an effect; outcomes come back as messages. While a batch is being appended no other message is
handled, so that an input never meets appends of its run in flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from runfold.core import drafts
from runfold.core.decisions import Nothing, decide, status, tool_calling
from runfold.core.errors import IllegalTransition
from runfold.core.events import Cause, Settlement, WaitReason
from runfold.core.policy import tool_backoff
from runfold.core.state import State, Status
from runfold.ports.agents import Message, RunningAgent
from runfold.ports.blobs import BlobMissing
from runfold.ports.log import RecordTooLarge
from runfold.runtime.executor import gate, launch, outcomes, performing, recovery, rulings
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.effects import Crashed, EffectKey, EffectOutcome, is_cancelled
from runfold.runtime.executor.openness import has_open, is_open
from runfold.runtime.executor.rulings import Arrived
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.executor.writer import EpochOver
from runfold.runtime.restore import Loaded

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """An effect has ended."""

    key: EffectKey
    outcome: EffectOutcome


@dataclass(frozen=True, slots=True)
class Due:
    """A moment has come: ``action`` is done with the run's next batch."""

    action: Callable[[RunDriver, Batch], None]


class RunDriver:
    """Drives one run in one tenure.

    Args:
        loaded: What the take-over brought into memory; None: to be loaded first, or not existing yet.

    Attributes:
        state: Folded from everything appended or being appended; None: no such run (yet).
        parked: Why this code cannot go on with it; its inputs wait.
        admitted: The version gate has let this code drive the run in this tenure.
        messages: The transcript's bytes as far as they were needed, in order.
        stale_appends: How often in a row a request had to be appended again for want of freshness.
    """

    def __init__(self, tenure: Tenure, run_id: str, loaded: Loaded | None) -> None:
        self.tenure = tenure
        self.run_id = run_id
        self.state: State | None = None if loaded is None else loaded.state
        self.parked: str | None = None if loaded is None else loaded.parked
        self.admitted = False
        self.messages: list[Message] = []
        self.stale_appends = 0
        self.lookup_tries: dict[EffectKey, int] = {}
        self._ended_effects: set[EffectKey] = set()
        self._known = loaded is not None
        self._recovered = True
        self._arrivals: deque[Arrived] = deque()
        self._results: deque[Finished | Due] = deque()
        self._wake = asyncio.Event()
        self._handling = True
        self._timers: set[asyncio.TimerHandle] = set()
        self._held_until: float | None = None

    # --- what others may ask and tell ---------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether it has appended everything that it knows."""
        return not self._handling and not self._results

    @property
    def at_rest(self) -> bool:
        """Whether it could leave memory: it waits or has ended, and nobody has told it anything."""
        return self.idle and self.state is not None and status(self.state) is not Status.RUNNING

    @property
    def idle(self) -> bool:
        """Whether it can only be moved from outside: nothing of it is in flight, and nothing will happen by itself."""
        if self.parked is not None:
            return True
        still = self.quiet and not self._arrivals and not self._timers
        return still and not self.tenure.world.effects.keys(self.run_id)

    @property
    def is_needless(self) -> bool:
        """Whether there is no such run: an input named it, and was refused."""
        return self._known and self.idle and self.state is None and self.parked is None

    @property
    def agent(self) -> RunningAgent | None:
        """The running code's agent, if it knows it."""
        return None if self.state is None else self.tenure.world.agents.get(self.state.agent)

    def arrive(self, arrived: Arrived) -> None:
        """Hand over an input; inputs of one run are handled in order."""
        self._arrivals.append(arrived)
        self._wake.set()

    def hear(self, key: EffectKey, outcome: EffectOutcome) -> None:
        """Hand over an effect's outcome."""
        self._ended_effects.add(key)
        self._results.append(Finished(key, outcome))
        self._wake.set()

    def after(self, delay: float, action: Callable[[RunDriver, Batch], None]) -> None:
        """Do something with a later batch."""

        def ring() -> None:
            self._timers.discard(handle)
            self._results.append(Due(action))
            self._wake.set()

        handle = asyncio.get_running_loop().call_later(max(0.0, delay), ring)
        self._timers.add(handle)

    def look_again(self) -> None:
        """A person lets the run go on: what dangles is dealt with anew."""
        self._recovered = False

    # --- the loop -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive until the epoch is over or the task is cancelled (at rest: when the run leaves memory)."""
        try:
            await self._load()
            while self.parked is None:
                await self._turn_over()
                self._handling = False
                await self._wake.wait()
                self._wake.clear()
                self._handling = True
            self._report_parked()
        except EpochOver:
            return
        except Exception as error:  # noqa: BLE001 - a defect met by one run must not halt its neighbours
            _log.exception("driver_failed", run_id=self.run_id, partition=self.tenure.partition)
            self.parked = f"{type(error).__name__}: {error}"
            self._report_parked()
        finally:
            self._handling = False
            for timer in self._timers:
                timer.cancel()

    async def _load(self) -> None:
        if not self._known:
            stored = await self.tenure.world.loader.load(self.run_id)
            if stored is not None:
                loaded = await self.tenure.load(stored)
                self.state, self.parked = loaded.state, loaded.parked
            self._known = True
        self._recovered = self.state is None or not has_open(self.state)
        recovery.attach_survivors(self)

    async def _turn_over(self) -> None:
        """Handle everything that is known now."""
        await self._advance(Batch(self.tenure, self.state))
        while self._results or self._next_arrival() is not None:
            batch = Batch(self.tenure, self.state)
            if self._results:
                self._take_result(batch, self._results.popleft())
            else:
                await self._take_input(batch, self._arrivals.popleft())
            await self._advance(batch)

    def _next_arrival(self) -> Arrived | None:
        if not self._arrivals or self.parked is not None or self.tenure.draining:
            return None
        if self._held_until is not None and self.tenure.world.clock.elapsed() < self._held_until:
            return None
        self._held_until = None
        return self._arrivals[0]

    def _take_result(self, batch: Batch, result: Finished | Due) -> None:
        try:
            if isinstance(result, Due):
                result.action(self, batch)
            else:
                self._take_outcome(batch, result.key, result.outcome)
        except Exception as error:  # noqa: BLE001 - whatever cannot be recorded stops this run only
            self._poison(batch, error)

    def _take_outcome(self, batch: Batch, key: EffectKey, outcome: EffectOutcome) -> None:
        try:
            outcomes.take(self, batch, key, outcome)
        except (IllegalTransition, RecordTooLarge, ValueError) as error:
            # It happened and cannot be recorded as it is: that much is recorded, by the rules of an unknown outcome.
            _log.error("outcome_not_recordable", run_id=self.run_id, step=key.step, error=printable(error))
            outcomes.take(self, batch, key, Crashed(f"its outcome could not be recorded: {printable(error)}"))

    async def _take_input(self, batch: Batch, arrived: Arrived) -> None:
        ruling = await rulings.rule(self, batch, arrived)
        if isinstance(ruling, rulings.Hold):
            self._arrivals.appendleft(arrived)
            self._held_until = self.tenure.world.clock.elapsed() + ruling.seconds
            self.after(ruling.seconds, _nothing)
        elif isinstance(ruling, rulings.Settle):
            await self.tenure.settle(self.tenure.settled(arrived.cause, ruling.outcome, self.run_id, ruling.why))
            if ruling.outcome is Settlement.DEAD:
                _log.info("input_dead", run_id=self.run_id, partition=self.tenure.partition, reason=ruling.why)

    async def _advance(self, batch: Batch) -> None:
        """Add what is decidable now, append it, start the effects."""
        while not self.tenure.draining and batch.state is not None and batch.state.ended is None:
            try:
                if not await self._step(batch):
                    break
            except EpochOver:
                raise
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                self._poison(batch, RuntimeError("the author's code raised a CancelledError"))
                break
            except Exception as error:  # noqa: BLE001 - whatever the author's code raises stops this run only
                self._poison(batch, error)
                break
        await self.commit(batch)

    async def _step(self, batch: Batch) -> bool:
        """One decision; False when nothing is decidable."""
        state = batch.state
        if state is None:
            return False
        dangling = not self._recovered
        if state.cancel_reason is None and not self.admitted:
            wanted = dangling or not state.has_first_message or gate.held_back(state)
            if wanted or not isinstance(decide(state, tool_calling), Nothing):
                admission = await gate.admit(self, batch)
                if not admission:
                    return False
                self.admitted = True
                return True
        if dangling:
            self._recovered = True
            recovery.recover(self, batch)
            return True
        agent = self.agent
        decision = decide(state, tool_calling if agent is None else agent.planner)
        if isinstance(decision, Nothing):
            return False
        return await performing.perform(self, batch, decision)

    async def commit(self, batch: Batch) -> None:
        """Append a batch, note its inputs as settled, start its requests; the batch is empty afterwards.

        Raises:
            EpochOver: See there.
        """
        self.state = batch.state
        if not batch.records:
            self._forget_recorded()
            return
        records, requests, causes = batch.take()
        produced_at = await self.tenure.writer.append(records)
        self.tenure.world.metrics.events_appended(len(records))
        for cause in causes:
            self._note_settled(cause)
        self._forget_recorded()
        for request in requests:
            launch.start(self, request, produced_at)

    def _forget_recorded(self) -> None:
        """Only now, that it is durable, may an effect's outcome leave memory."""
        for key in [key for key in self._ended_effects if not is_open(self.state, key)]:
            self._ended_effects.discard(key)
            self.tenure.world.effects.forget(key)

    def _note_settled(self, cause: Cause) -> None:
        self.tenure.positions.settle(cause.topic, cause.offset)
        self.tenure.world.metrics.input_settled("event")

    def _poison(self, batch: Batch, error: Exception) -> None:
        """The run cannot go on by itself: it waits for a person, and its neighbours keep moving."""
        _log.error("run_poisoned", run_id=self.run_id, partition=self.tenure.partition, error=repr(error))
        state = batch.state
        if state is None or state.ended is not None or state.operational_wait() is not None:
            self.parked = f"{type(error).__name__}: {error}"
            return
        what = "a payload is missing: " if isinstance(error, BlobMissing) else ""
        detail = {"error": f"{what}{printable(error)}"}
        batch.add(drafts.interruption(state, batch.stamp(), WaitReason.ERROR, detail))

    def retry_later(self, retries: int, action: Callable[[RunDriver, Batch], None]) -> None:
        """Do something after a tool's back-off."""
        self.after(tool_backoff(retries, self.tenure.world.chance.jitter()), action)

    def _report_parked(self) -> None:
        self.tenure.world.metrics.run_parked(self.tenure.partition)
        _log.error("run_parked", run_id=self.run_id, partition=self.tenure.partition, error=self.parked)


def printable(error: Exception) -> str:
    """An exception in words, shortened; it may quote text that is no Unicode, and the log holds nothing else."""
    return f"{type(error).__name__}: {error}"[:4000].encode(errors="replace").decode()


def _nothing(_driver: RunDriver, _batch: Batch) -> None:
    """Only wake up."""
