"""Producers and people: they start runs, approve, resolve, resume and cancel; hastily, twice, and at wrong places."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from runfold.codec import inputs as codec_inputs
from runfold.core.events import WaitReason
from runfold.core.payload import Inline
from runfold.core.state import OPERATIONAL, State, Wait
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.cluster import TOPICS, Cluster
from runfold.testing.simulation.history import History
from runfold.testing.simulation.weather import Weather


@dataclass
class People:
    """Everybody outside.

    Attributes:
        started: Ids of the runs that were started, with what was started: (agent, input).
    """

    cluster: Cluster
    history: History
    book: Book
    weather: Weather
    chance: Random
    started: dict[str, tuple[str, object]] = field(default_factory=dict)
    _answered: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    async def start(self, run_id: str, agent: str, given: object = "go", **fields: str) -> None:
        """Start a run; it has to come to its end."""
        self.started[run_id] = (agent, given)
        await self.send(TOPICS.requests, run_id, codec_inputs.encode_start(run_id, agent, given, **fields))

    @property
    def all_ended(self) -> bool:
        """Whether every run that was started has."""
        states = (self.history.state(run_id) for run_id in self.started)
        return all(state is not None and state.ended is not None for state in states)

    async def attend(self) -> None:
        """Look at the runs every second or two, for ever, and do what they wait for."""
        while True:
            await asyncio.sleep(0.2 + self.chance.random() * 2)
            for run_id in list(self.started):
                if not (self.weather.is_bad and self.chance.random() < 0.5):  # noqa: PLR2004 - either
                    await self._look_at(run_id)

    async def _look_at(self, run_id: str) -> None:
        if self._silly(0.01):
            unknown = f"unknown{self.chance.randint(0, 9)}"
            await self.send(TOPICS.requests, unknown, codec_inputs.encode_resume(unknown, "x"))
        state = self.history.state(run_id)
        if state is None:
            return
        if state.ended is not None:
            if self._silly(0.05):
                agent, given = self.started[run_id]
                await self.send(TOPICS.requests, run_id, codec_inputs.encode_start(run_id, agent, given))
        elif self._silly(0.03):
            await self.send(TOPICS.requests, run_id, codec_inputs.encode_cancel(run_id, "enough", "ops"))
        else:
            if self._silly(0.03):
                await self._guess(state)
            # As they looked: what they saw of the second may be over when the first is answered.
            for wait, attempt in [(wait, _attempt_of(state, wait)) for wait in state.waits.values()]:
                # Nobody lets a run go on that was cancelled: it has to end, whatever holds it.
                is_moot = wait.reason in OPERATIONAL and state.cancel_reason is not None
                if self.chance.random() >= 0.3 and not is_moot:  # noqa: PLR2004 - now and then
                    await self._lift(run_id, wait, attempt)

    def _silly(self, probability: float) -> bool:
        return self.weather.is_bad and self.chance.random() < probability

    async def _guess(self, state: State) -> None:
        """Approve what is not asked yet, or has been answered long ago."""
        step = max(1, state.last_step + self.chance.randint(-2, 2))
        decision = self.chance.choice(["approved", "rejected"])
        value = codec_inputs.encode_approval(state.run_id, f"{state.run_id}:{step}", decision, "mallory")
        await self.send(TOPICS.approvals, state.run_id, value)

    async def _lift(self, run_id: str, wait: Wait, attempt: int) -> None:
        ids: dict[str, Any] = {"id": f"i{self.chance.randint(0, 10**9)}"} if self._sometimes() else {}
        if wait.reason is WaitReason.AWAITING_APPROVAL:
            decision = self.chance.choice(["approved", "approved", "rejected"])
            by = self.chance.choice(["dana", "lee"])
            digest = wait.arguments_digest if self._sometimes() else None
            if self._silly(0.1):
                digest = "0" * 64  # of something else than what is asked
            value = codec_inputs.encode_approval(run_id, wait.wait_id, decision, by, arguments_digest=digest, **ids)
            await self.send(TOPICS.approvals, run_id, value)
        elif wait.reason is WaitReason.INDETERMINATE:
            await self._resolve(run_id, wait, attempt, ids)
        else:
            await self.send(TOPICS.requests, run_id, codec_inputs.encode_resume(run_id, "ops", **ids))

    def _sometimes(self) -> bool:
        return self.chance.random() < 0.3  # noqa: PLR2004 - now and then

    async def _resolve(self, run_id: str, wait: Wait, attempt: int, ids: dict[str, Any]) -> None:
        """Say truly what happened; and again only when the first answer is settled and the doubt is still there.

        An "absent" that names no attempt is true now, and false of a later attempt: it is said once, at the right
        place, and has to be settled before the next one is said.
        """
        doubt = (wait.wait_id, attempt)
        said = self._answered.get(doubt)
        if said is not None and not self._is_settled(*said):
            return
        named = {"attempt": attempt} if self.chance.random() < 0.5 and attempt > 0 else {}  # noqa: PLR2004 - either
        fields = ids | named
        may_stray = True
        if wait.wait_id in self.book.results:
            result = self.book.results[wait.wait_id]
            value = codec_inputs.encode_resolve(run_id, wait.step, "result", "ops", result=result, **fields)
        elif self.chance.random() < 0.7 and not _is_still_running(wait):  # noqa: PLR2004 - more often than not
            value = codec_inputs.encode_resolve(run_id, wait.step, "absent", "ops", **fields)
            may_stray = bool(named)
        else:
            value = codec_inputs.encode_resolve(run_id, wait.step, "error", "ops", error="gone", **fields)
        self._answered[doubt] = await self.send(TOPICS.requests, run_id, value, may_stray=may_stray)

    def _is_settled(self, partition: int, offset: int) -> bool:
        return self.history.partitions()[partition].fence.positions.is_settled(TOPICS.requests, offset)

    async def send(self, topic: str, run_id: str, value: bytes, *, may_stray: bool = True) -> tuple[int, int]:
        """Produce an input; if it ``may_stray``, at times to a wrong partition and at times twice.

        Returns:
            Its partition and offset.
        """
        partition = self.history.of(run_id).partition
        if may_stray and self.chance.random() < 0.1:  # noqa: PLR2004 - now and then
            partition = self.chance.randrange(self.cluster.partitions)
        offset = await self.cluster.send(topic, run_id, value, partition)
        self.book.tell(f"sent {topic}[{partition}]@{offset} {run_id} {value.decode()}")
        if may_stray and self.chance.random() < 0.15:  # noqa: PLR2004 - now and then
            await self.cluster.send(topic, run_id, value, partition)
        return partition, offset


def _attempt_of(state: State, wait: Wait) -> int:
    """The attempt that an indeterminate wait is about; 0 for other waits."""
    call = state.call_at(wait.step)
    return 0 if call is None else call.attempt


def _is_still_running(wait: Wait) -> bool:
    """Whether the wait tells people that a thread of the call had outlived its time-out: it may have its effect yet."""
    return isinstance(wait.detail, Inline) and b"thread" in wait.detail.data
