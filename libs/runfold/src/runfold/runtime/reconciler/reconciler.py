"""The loop: lease due calls, ask about each, publish the verdict, and say when to look again."""

from __future__ import annotations

import asyncio

import structlog

from runfold.codec.input_types import BadInput, VerdictInput
from runfold.codec.inputs import encode_verdict
from runfold.core.events import Recovery
from runfold.ports.agents import Agents
from runfold.ports.blobs import Blobs, BlobsUnavailable
from runfold.ports.clock import Clock
from runfold.ports.log import RecordTooLarge
from runfold.ports.publisher import Publisher, PublishFailed
from runfold.ports.store import DueCall, OpenCallRow, ReconcilerStore, StoreUnavailable
from runfold.runtime.reconciler.asking import Questions
from runfold.runtime.reconciler.judging import Later, judge, judge_manual, unsayable
from runfold.runtime.reconciler.settings import NoMetrics, ReconcilerMetrics, ReconcilerSettings
from runfold.runtime.resting import sleep_unless

_log = structlog.get_logger(__name__)
_READING_S = 5.0


class Reconciler:
    """One reconciler of any number: leases in Postgres keep two of them off the same call.

    What it does may be done twice (a lease runs out, a process dies between publishing and postponing): the owner of
    the run accepts one verdict per attempt, and settles the others without effect.
    """

    def __init__(
        self,
        store: ReconcilerStore,
        publisher: Publisher,
        blobs: Blobs,
        agents: Agents,
        clock: Clock,
        settings: ReconcilerSettings,
        metrics: ReconcilerMetrics | None = None,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._settings = settings
        self._metrics = metrics or NoMetrics()
        self._questions = Questions(store, blobs, agents)
        self._at_work = 0
        self._stopping = asyncio.Event()
        self._leasing: asyncio.Timeout | None = None
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Reconcile until ``close`` is called; a cancellation ends the lookups in hand."""
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as group:
                while not self._stopping.is_set():
                    for due in await self._lease():
                        self._at_work += 1
                        group.create_task(self._handle(due), name=f"reconcile {due.call.run_id}:{due.call.step}")
                    await sleep_unless(self._stopping, self._settings.scan_s)
        finally:
            self._ended.set()

    async def close(self) -> None:
        """Lease nothing more, and wait for the lookups in hand; those that outlast ``drain_s`` are left to ``run``.

        What is unfinished is looked at again when its lease is over, by whoever is there.
        """
        self._stopping.set()
        if self._leasing is not None:
            self._leasing.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(self._settings.drain_s):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("reconciler_drain_over", lookups=self._at_work)

    async def _lease(self) -> list[DueCall]:
        """Lease no more than can be asked about at once: a lease must not run out in a queue.

        ``close`` ends it: a store that is away is not waited for. What was leased all the same runs out.
        """
        free = self._settings.concurrency - self._at_work
        if free <= 0:
            return []
        settings = self._settings
        try:
            async with asyncio.timeout(None) as self._leasing:
                return await self._store.lease_due(settings.holder, free, settings.grace_s, settings.lease_s)
        except StoreUnavailable as error:
            self._away("store", error)
        except TimeoutError:
            if not self._stopping.is_set():
                raise
        finally:
            self._leasing = None
        return []

    async def _handle(self, due: DueCall) -> None:
        """Deal with one call; whatever goes wrong with it stays with it, and its lease runs out."""
        started = self._clock.elapsed()
        call = due.call
        said = "failed"
        try:
            said = await self._reconcile(due)
        except StoreUnavailable as error:
            self._away("store", error, call)
        except BlobsUnavailable as error:
            self._away("blobs", error, call)
        except (PublishFailed, RecordTooLarge) as error:
            self._away("publisher", error, call)
        except Exception:  # noqa: BLE001 - a defect of ours: the others go on, and it is not silent
            _log.exception("reconcile_failed", run_id=call.run_id, step=call.step, attempt=call.attempt)
        finally:
            self._at_work -= 1
            self._metrics.looked_up(said, self._clock.elapsed() - started)

    async def _reconcile(self, due: DueCall) -> str:
        settings = self._settings
        if due.call.recovery is Recovery.MANUAL:
            judged = judge_manual(due, settings.holder, settings.scan_s)
        else:
            own_timeout_s, tries = self._questions.terms(due.call)
            answer = await self._questions.ask(due.call, await self._time_for(due, own_timeout_s))
            judged = judge(due, answer, settings.holder, settings.scan_s, tries)
        if isinstance(judged, Later):
            _log.info("reconcile_later", **_named(due.call), tries=judged.tries, delay_s=judged.delay_s, why=judged.why)
            await self._store.postpone(due.call, settings.holder, judged.delay_s, judged.tries)
            return "later"
        verdict = await self._publish(due, judged)
        _log.info("verdict", **_named(due.call), outcome=verdict.outcome, owner_gone=due.owner_gone)
        await self._store.postpone(due.call, settings.holder, settings.repeat_s, due.tries)
        return verdict.outcome

    async def _time_for(self, due: DueCall, own_timeout_s: float | None) -> float:
        """Give the time for everything about one lookup, and make sure that the lease outlasts it."""
        settings = self._settings
        if own_timeout_s is None:
            return settings.lookup_timeout_s
        # Reading arguments and state comes on top of the lookup's own time, which the lookup itself is given.
        whole_s = own_timeout_s + _READING_S
        if whole_s + _READING_S > settings.lease_s:
            await self._store.postpone(due.call, settings.holder, whole_s + settings.lease_s, due.tries)
        return whole_s

    async def _publish(self, due: DueCall, verdict: VerdictInput) -> VerdictInput:
        try:
            value = encode_verdict(verdict)
        except BadInput as error:
            verdict = unsayable(due, self._settings.holder, str(error))
            value = encode_verdict(verdict)
        await self._publisher.publish(self._settings.topics.control, verdict.run_id.encode(), value)
        return verdict

    def _away(self, what: str, error: Exception, call: OpenCallRow | None = None) -> None:
        self._metrics.unreachable(what)
        _log.warning("reconciler_waits", dependency=what, error=str(error), **({} if call is None else _named(call)))


def _named(call: OpenCallRow) -> dict[str, object]:
    return {
        "run_id": call.run_id,
        "partition": call.partition,
        "step": call.step,
        "attempt": call.attempt,
        "tool": call.tool,
    }
