"""``Client``: what a user, an approval system or an operator does with runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any

from runfold.client import views
from runfold.client.dead import view
from runfold.client.errors import NoSuchEventError, RunCancelledError, RunFailedError, RunNotFoundError
from runfold.client.inputs import Sender, Submitted
from runfold.client.reader import LoggedEvent, RunReader, Settled
from runfold.codec import inputs
from runfold.core.events import RunCancelled, RunCompleted, RunFailed, WaitReason
from runfold.core.state import State, Status
from runfold.core.transitions import fold
from runfold.ports.blobs import Blobs
from runfold.ports.dead import DeadLetters
from runfold.ports.log import Log
from runfold.ports.publisher import Publisher
from runfold.ports.store import Queries, StoreUnavailable
from runfold.ports.topics import Topics

if TYPE_CHECKING:
    from runfold.service.settings import ClientSettings  # at run time only where somebody connects

Json = Any
JsonList = list[Json]
_ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Client:
    """Starts runs, decides about them, and reads what happened. ``Client.connect`` makes one from settings.

    Inputs return as soon as they are durable; ``settled`` tells what became of them.

    Args:
        log, publisher, queries, blobs, dead: Kafka, Postgres and the object store; opened and closed by the caller.
        topics: Their full names.
        partitions: Of each topic.
    """

    def __init__(
        self,
        *,
        log: Log,
        publisher: Publisher,
        queries: Queries,
        blobs: Blobs,
        dead: DeadLetters,
        topics: Topics,
        partitions: int,
    ) -> None:
        self._queries = queries
        self._payloads = views.Payloads(blobs)
        self._dead = dead
        self._topics = topics
        self._reader = RunReader(log, queries, partitions)
        self._sender = Sender(publisher, self._reader)

    @staticmethod
    def connect(settings: ClientSettings | None = None) -> AbstractAsyncContextManager[Client]:
        """Connect with settings, by default those of the environment: ``async with Client.connect() as client``.

        Nothing is reached before it is needed: what cannot be reached raises where it is used.

        Raises:
            SettingsError: The environment is not usable.
            StoreUnavailable, PublishFailed, LogUnrecoverable, BlobsUnavailable: By the methods: see the ports.
        """
        from runfold.client.connect import connected  # noqa: PLC0415 - the adapters are heavy, and not always there

        return connected(settings)

    # --- inputs -------------------------------------------------------------------------------------------------

    async def start(self, agent: str, input: Json, *, run_id: str) -> Submitted:  # noqa: A002 - the contract's word
        """Start a run; the same id, agent and input again have no effect.

        Raises:
            BadInput: What would be refused; by all of these.
            PublishFailed: It may not be durable: send it again; by all of these.
        """
        return await self._sender.send(self._topics.requests, run_id, inputs.encode_start(run_id, agent, input))

    async def approve(self, run_id: str, approval_id: str, *, by: str, comment: str | None = None) -> Submitted:
        """Let a gated call happen."""
        return await self._decide(run_id, approval_id, "approved", by, comment)

    async def reject(self, run_id: str, approval_id: str, *, by: str, comment: str | None = None) -> Submitted:
        """Refuse a gated call; the model is told."""
        return await self._decide(run_id, approval_id, "rejected", by, comment)

    async def cancel(self, run_id: str, *, reason: str, by: str | None = None) -> Submitted:
        """End a run: nothing new is started, open calls are waited for."""
        return await self._sender.send(self._topics.requests, run_id, inputs.encode_cancel(run_id, reason, by))

    async def resume(self, run_id: str, *, by: str, accept_version: bool = False) -> Submitted:
        """Let a run go on that an error or another version stopped."""
        value = inputs.encode_resume(run_id, by, accept_version=accept_version)
        return await self._sender.send(self._topics.requests, run_id, value)

    async def resolve(
        self,
        run_id: str,
        step: int,
        outcome: str,
        *,
        by: str,
        result: Json = None,
        error: str | None = None,
        attempt: int | None = None,
    ) -> Submitted:
        """Say what became of an indeterminate call: ``result``, ``absent`` (run it again) or ``error``.

        ``attempt``: the one that was looked at; None: the one that is in doubt now, as far as Postgres knows. So what
        is said twice about one attempt is not believed about the next.
        """
        if attempt is None:
            attempt = await self._doubted_attempt(run_id, step)
        value = inputs.encode_resolve(run_id, step, outcome, by, result=result, error=error, attempt=attempt)
        return await self._sender.send(self._topics.requests, run_id, value)

    async def _doubted_attempt(self, run_id: str, step: int) -> int | None:
        try:
            rows = await self._queries.waits(run_id)
        except StoreUnavailable:
            return None  # an input can be sent while Postgres is away
        for row in rows:
            if row.step == step and row.reason is WaitReason.INDETERMINATE:
                attempt = (await self._payloads.json(row.detail)).get("attempt")
                return attempt if isinstance(attempt, int) else None
        return None

    async def settled(self, submitted: Submitted, *, timeout_s: float = 5.0) -> Settled | None:
        """Wait for what becomes of an input; None if nothing has in time: it stays durably queued."""
        return await self._sender.settled(submitted, timeout_s)

    async def _decide(self, run_id: str, approval_id: str, decision: str, by: str, comment: str | None) -> Submitted:
        value = inputs.encode_approval(run_id, approval_id, decision, by, comment)
        return await self._sender.send(self._topics.approvals, run_id, value)

    # --- reading ------------------------------------------------------------------------------------------------

    async def result(self, run_id: str) -> Json:
        """Wait until a run has ended and give its output; a run that does not exist yet is waited for.

        Raises:
            RunFailedError: It ended without an output.
            RunCancelledError: It was cancelled.
        """
        place = await self._reader.place(run_id)
        is_over = place.run is not None and place.run.status in _ENDED
        async with aclosing(self._reader.follow(run_id, place, from_start=is_over)) as events:
            async for logged in events:
                match logged.event:
                    case RunCompleted(output=output):
                        return await self._payloads.json(output)
                    case RunFailed(error=error):
                        raise RunFailedError(run_id, error)
                    case RunCancelled(reason=reason, open_keys=open_keys):
                        raise RunCancelledError(run_id, reason, open_keys)
                    case _:
                        continue
        raise RunNotFoundError(run_id)

    async def events(self, run_id: str, *, follow: bool = False, may_start: bool = False) -> AsyncGenerator[Json, None]:
        """Give a run's valid events as the contract's JSON objects, in order.

        Args:
            run_id: The run.
            follow: Go on with those to come, until the run has ended.
            may_start: With ``follow``: wait for a run that does not exist yet.

        Raises:
            RunNotFoundError: There is no such run.
        """
        if not follow:
            async for logged in self._reader.events(run_id):
                yield await self._json(logged)
            return
        place = await self._reader.place(run_id)
        if place.run is None and not may_start:
            async with aclosing(self._reader.events(run_id)) as known:
                await anext(known)
        async for logged in self._reader.follow(run_id, place, from_start=True):
            yield await self._json(logged)

    async def show(self, run_id: str) -> Json:
        """Give one run and its open waits, the events that Postgres does not know yet included.

        Raises:
            RunNotFoundError: There is no such run.
        """
        place = await self._reader.place(run_id)
        async with aclosing(self._reader.newer(run_id, place)) as newer:
            is_behind = await anext(newer, None) is not None
        if place.run is not None and (not is_behind or place.run.parked is not None):
            waits = [await views.wait_row(row, self._payloads) for row in await self._queries.waits(run_id)]
            return {**await views.run_summary(place.run, self._payloads), "waits": waits}
        state = await self._state(run_id, None)
        waits = await views.waits(state, self._payloads)
        summary = await views.folded_summary(state, self._reader.partition(run_id), self._payloads)
        return {**summary, "waits": waits}

    async def decisions(self, run_id: str) -> JsonList:
        """Give what people have decided about a run, oldest first: approvals, resolves, resumes, cancels.

        Each: ``seq``, ``at``, ``step`` (None for a cancel), ``decision`` (``approved``, ``rejected``, ``result``,
        ``error``, ``absent``, ``resumed`` or ``cancelled``), ``by``, ``comment``, ``cause`` (the input that said so).

        Raises:
            RunNotFoundError: There is no such run.
        """
        async with aclosing(self.events(run_id)) as events:
            return [said async for event in events if (said := views.decision(event)) is not None]

    async def state(self, run_id: str, *, at: int | None = None) -> Json:
        """Fold a run's events, up to and including ``seq`` ``at``, and give everything that the fold knows.

        Raises:
            RunNotFoundError: There is no such run.
            NoSuchEventError: It has no event ``at``.
        """
        state = await self._state(run_id, at)
        return await views.whole_state(state, self._reader.partition(run_id), self._payloads)

    async def list(self, *, status: str | None = None, agent: str | None = None, limit: int = 100) -> JsonList:
        """Give runs that Postgres knows, newest first; ``waiting_for``: the reasons of a run's open waits."""
        rows = await self._queries.runs(status=status, agent=agent, limit=limit)
        reasons: dict[str, list[str]] = {}
        if any(row.status is Status.WAITING for row in rows):
            for wait in await self._queries.waits(None):
                reasons.setdefault(wait.run_id, []).append(wait.reason.value)
        return [
            {**await views.run_summary(row, self._payloads), "waiting_for": reasons.get(row.run_id, [])} for row in rows
        ]

    async def waits(self, run_id: str | None = None) -> JsonList:
        """Give open waits, oldest first."""
        return [await views.wait_row(row, self._payloads) for row in await self._queries.waits(run_id)]

    async def dead(self) -> JsonList:
        """Give the inputs that could not be accepted, oldest first, each once.

        Whoever folds the log again copies them again: the first copy counts, the original may be gone since.
        """
        shown: dict[tuple[Json, ...], Json] = {}
        for record in await self._dead.read():
            row = view(record)
            shown.setdefault((row["topic"], row["partition"], row["offset"]), row)
        return list(shown.values())

    async def _json(self, logged: LoggedEvent) -> Json:
        return await views.event(logged, self._payloads)

    async def _state(self, run_id: str, at: int | None) -> State:
        state: State | None = None
        async with aclosing(self._reader.events(run_id)) as events:
            async for logged in events:
                state = fold(state, logged.event)
                await asyncio.sleep(0)
                if state.seq == at:
                    return state
        if state is None:
            raise RunNotFoundError(run_id)
        if at is not None:
            message = f"run {run_id} has no event {at}: its last one is {state.seq}"
            raise NoSuchEventError(message)
        return state
