"""One coroutine drives one run: it takes news and inputs one at a time, decides, appends, and starts effects.

It never waits for an effect; outcomes come back through the mailbox. While a batch is being appended nothing else is
handled, so that an input never meets appends of its run in flight.
"""

from __future__ import annotations

import asyncio

import structlog

from runfold.core import drafts
from runfold.core.decisions import Nothing, decide, status, tool_calling
from runfold.core.errors import IllegalTransition
from runfold.core.events import Settlement, WaitReason
from runfold.core.state import State, Status
from runfold.core.text import clip
from runfold.ports.blobs import BlobMissing
from runfold.ports.log import LogUnavailable, LogUnrecoverable, RecordTooLarge
from runfold.runtime.executor import outcomes, performing, recovery, rulings, version_gate
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.commit import commit
from runfold.runtime.executor.effects import Crashed, is_cancelled
from runfold.runtime.executor.mailbox import Arrived, Due, Finished
from runfold.runtime.executor.run import Run
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.executor.writer import EpochOver
from runfold.runtime.persist import persist
from runfold.runtime.restore import Loaded

_log = structlog.get_logger(__name__)


class Driver:
    """Drives one run in one tenure.

    Args:
        tenure: The ownership under which it acts.
        run_id: The run.
        loaded: What the take-over brought into memory; None: to be loaded first, or not existing yet.

    Attributes:
        run: What it drives.
    """

    def __init__(self, tenure: Tenure, run_id: str, loaded: Loaded | None) -> None:
        self.run = Run(tenure, run_id)
        self._known = loaded is not None
        if loaded is not None:
            self._adopt(loaded)
        self._handling = True

    # --- what others may ask ------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether it has appended everything that it knows."""
        return self.run.parked is not None or not (self._handling or self.run.mailbox.has_news)

    @property
    def idle(self) -> bool:
        """Whether it can only be moved from outside: nothing of it is in flight, and nothing will happen by itself."""
        if self.run.parked is not None:
            return True
        state, mailbox = self.run.state, self.run.mailbox
        if not (self.quiet and mailbox.is_empty) or self.run.world.effects.keys(self.run.run_id):
            return False
        # A retry that an ended run had planned is nobody's business any more.
        return not mailbox.has_timers or (state is not None and state.ended is not None)

    @property
    def at_rest(self) -> bool:
        """Whether the run could leave memory: it waits or has ended, and nobody has told it anything."""
        state = self.run.state
        return self.run.parked is None and self.idle and state is not None and status(state) is not Status.RUNNING

    @property
    def is_needless(self) -> bool:
        """Whether there is no such run: an input named it, and was refused."""
        return self._known and self.run.parked is None and self.idle and self.run.state is None

    # --- the loop -----------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Drive until the epoch is over or the task is cancelled (at rest: when the run leaves memory)."""
        try:
            await self._load()
            await self._advance(self.run.batch())
            while self.run.parked is None:
                await self._handle_all()
                self._handling = False
                await self.run.mailbox.wait()
                self._handling = True
        except EpochOver:
            return
        except LogUnrecoverable as error:
            self.run.tenure.writer.end(str(error), error)
        except Exception as error:  # noqa: BLE001 - a defect met by one run must not halt its neighbours
            _log.exception("driver_failed", **self._place)
            self.run.parked = printable(error)
        finally:
            self._handling = False
            self.run.mailbox.close()
            if (agent := self.run.agent) is not None:
                agent.forget(self.run.run_id)
        if self.run.parked is not None:
            self.run.world.metrics.run_parked(self.run.tenure.partition)
            _log.error("run_parked", error=self.run.parked, **self._place)

    @property
    def _place(self) -> dict[str, object]:
        return {"run_id": self.run.run_id, "partition": self.run.tenure.partition, "epoch": self.run.tenure.epoch}

    async def _load(self) -> None:
        if not self._known:
            stored = await self.run.world.loader.load(self.run.run_id, self.run.tenure.horizon)
            if stored is not None:

                def tell(error: Exception, failures: int) -> None:
                    _log.warning("log_away", error=str(error), failures=failures, **self._place)

                load = self.run.tenure.load
                self._adopt(await persist(lambda: load(stored), LogUnavailable, self.run.world.chance, tell))
            self._known = True
        recovery.attach_survivors(self.run)

    def _adopt(self, loaded: Loaded) -> None:
        self.run.state, self.run.parked = loaded.state, loaded.parked
        self.run.dangling = loaded.state is not None and loaded.state.has_open_request

    async def _handle_all(self) -> None:
        """Handle everything that is known now; only news and inputs make anything decidable."""
        run = self.run
        while not run.parked:
            if (news := run.mailbox.take_news()) is not None:
                self._take_news(batch := run.batch(), news)
            elif not run.tenure.draining and (arrived := run.mailbox.take_arrival()) is not None:
                await self._take_input(batch := run.batch(), arrived)
            else:
                return
            await self._advance(batch)

    def _take_news(self, batch: Batch, news: Finished | Due) -> None:
        try:
            if isinstance(news, Due):
                news.action(batch)
            else:
                self._take_outcome(batch, news)
        except Exception as error:  # noqa: BLE001 - whatever cannot be recorded stops this run only
            self._poison(batch, error)

    def _take_outcome(self, batch: Batch, finished: Finished) -> None:
        try:
            outcomes.take(self.run, batch, finished.key, finished.outcome)
        except (IllegalTransition, RecordTooLarge, ValueError) as error:
            # It happened and cannot be recorded as it is: that much is recorded, by the rules of an unknown outcome.
            _log.error("outcome_not_recordable", step=finished.key.step, error=printable(error), **self._place)
            crashed = Crashed(f"its outcome could not be recorded: {printable(error)}")
            outcomes.take(self.run, batch, finished.key, crashed)

    async def _take_input(self, batch: Batch, arrived: Arrived) -> None:
        try:
            ruling = await rulings.rule(self.run, batch, arrived)
        except (IllegalTransition, RecordTooLarge, ValueError) as error:
            ruling = rulings.dead("not_recordable", f"it cannot be recorded: {printable(error)}")
        if isinstance(ruling, rulings.Hold):
            self.run.mailbox.hold(arrived, ruling.seconds)
        elif isinstance(ruling, rulings.Settle):
            tenure = self.run.tenure
            await tenure.settle(tenure.settled(arrived.cause, ruling.outcome, self.run.run_id, ruling.why))
            if ruling.outcome is Settlement.DEAD and ruling.why is not None:
                _log.info("input_dead", reason=ruling.why[0], **self._place)

    async def _advance(self, batch: Batch) -> None:
        """Add what is decidable now, append it, start the effects."""
        while not self.run.tenure.draining and batch.state is not None and batch.state.ended is None:
            try:
                if not await self._step(batch, batch.state):
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
        await commit(self.run, batch)

    async def _step(self, batch: Batch, state: State) -> bool:
        """One decision; False when nothing is decidable."""
        run = self.run
        run.state = state
        if state.cancel_reason is None and not run.admitted:
            wanted = run.dangling or not state.has_first_message or version_gate.holds_back(state)
            if wanted or not isinstance(decide(state, tool_calling), Nothing):
                run.admitted = await version_gate.admit(run, batch)
                return run.admitted
        if run.dangling:
            run.dangling = False
            recovery.recover(run, batch)
            return True
        agent = run.agent
        decision = decide(state, tool_calling if agent is None else agent.planner)
        if isinstance(decision, Nothing):
            return False
        return await performing.perform(run, batch, decision)

    def _poison(self, batch: Batch, error: Exception) -> None:
        """The run cannot go on by itself: it waits for a person, and its neighbours keep moving."""
        _log.error("run_poisoned", error=printable(error), **self._place)
        state = batch.state
        if state is None or state.ended is not None or state.operational_wait() is not None:
            self.run.parked = printable(error)
            return
        if isinstance(error, BlobMissing):
            outcomes.hold_for_payload(batch, state, printable(error))
            return
        batch.add(drafts.interruption(state, batch.stamp(), WaitReason.ERROR, {"error": printable(error)}))


def printable(error: Exception) -> str:
    """An exception in words."""
    return clip(f"{type(error).__name__}: {error}")
