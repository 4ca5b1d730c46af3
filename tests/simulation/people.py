"""Producers and people: they start runs, approve, resolve, resume and cancel; hastily, twice, and at wrong places."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from runfold.codec import inputs as codec_inputs
from runfold.core.events import WaitReason
from runfold.core.state import State, Wait
from tests.runtime.system import TOPICS, System
from tests.simulation.faults import Weather
from tests.simulation.history import History
from tests.simulation.world import World


@dataclass
class People:
    """Everybody outside.

    Attributes:
        kinds: Names of the tools that the runs call.
        runs: Ids of the runs that were started.
    """

    system: System
    world: World
    chance: Random
    kinds: list[str]
    runs: list[str] = field(default_factory=list)
    _answered: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def _weather(self) -> Weather:
        return self.world.weather

    @property
    def _history(self) -> History:
        return self.world.history

    async def start_runs(self, count: int) -> None:
        """Start runs of 0 to 3 turns with 1 to 3 calls each."""
        for number in range(count):
            run_id = f"r{number}"
            turns = [[self._call() for _ in range(self.chance.randint(1, 3))] for _ in range(self.chance.randint(0, 3))]
            self.world.scripts[run_id] = [*turns, "done"]
            self.runs.append(run_id)
            ids = {"id": f"s{number}"} if self.chance.random() < 0.3 else {}
            await self._send(TOPICS.requests, run_id, codec_inputs.encode_start(run_id, "a", run_id, **ids))
            if self.chance.random() < 0.3:
                await asyncio.sleep(self.chance.random() * 5)

    def _call(self) -> tuple[str, dict[str, Any]]:
        name = self.chance.choice(self.kinds)
        return name, {"n": self.chance.randint(0, 9) if self.chance.random() < 0.95 else "bad"}

    async def attend(self) -> None:
        """Look at the runs every second or two, for ever, and do what they wait for."""
        while True:
            await asyncio.sleep(0.2 + self.chance.random() * 2)
            for run_id in list(self.runs):
                if not (self._weather.is_bad and self.chance.random() < 0.5):
                    await self._look_at(run_id)

    async def _look_at(self, run_id: str) -> None:
        if self._silly(0.01):
            unknown = f"unknown{self.chance.randint(0, 9)}"
            await self._send(TOPICS.requests, unknown, codec_inputs.encode_resume(unknown, "x"))
        state = self._history.state(run_id)
        if state is None:
            return
        if state.ended is not None:
            if self._silly(0.05):
                await self._send(TOPICS.requests, run_id, codec_inputs.encode_start(run_id, "a", run_id))
        elif self._silly(0.02):
            await self._send(TOPICS.requests, run_id, codec_inputs.encode_cancel(run_id, "enough", "ops"))
        else:
            # As they looked: what they saw of the second may be over when the first is answered.
            for wait, attempt in [(wait, _attempt_of(state, wait)) for wait in state.waits.values()]:
                if self.chance.random() >= 0.3:
                    await self._lift(run_id, wait, attempt)

    def _silly(self, probability: float) -> bool:
        return self._weather.is_bad and self.chance.random() < probability

    async def _lift(self, run_id: str, wait: Wait, attempt: int) -> None:
        ids: dict[str, Any] = {"id": f"i{self.chance.randint(0, 10**9)}"} if self.chance.random() < 0.3 else {}
        if wait.reason is WaitReason.AWAITING_APPROVAL:
            decision = self.chance.choice(["approved", "approved", "rejected"])
            by = self.chance.choice(["dana", "lee"])
            value = codec_inputs.encode_approval(run_id, wait.wait_id, decision, by, **ids)
            await self._send(TOPICS.approvals, run_id, value)
        elif wait.reason is WaitReason.INDETERMINATE:
            await self._resolve(run_id, wait, attempt, ids)
        else:
            await self._send(TOPICS.requests, run_id, codec_inputs.encode_resume(run_id, "ops", **ids))

    async def _resolve(self, run_id: str, wait: Wait, attempt: int, ids: dict[str, Any]) -> None:
        """Say truly what happened; and again only when the first answer is settled and the doubt is still there.

        An "absent" that names no attempt is true now, and false of a later attempt: it is said once, at the right
        place, and has to be settled before the next one is said.
        """
        doubt = (wait.wait_id, attempt)
        said = self._answered.get(doubt)
        if said is not None and not self._is_settled(*said):
            return
        named = {"attempt": attempt} if self.chance.random() < 0.5 and attempt > 0 else {}
        fields = ids | named
        ticket = self.world.downstream.tickets.get(wait.wait_id)
        may_stray = True
        if ticket is not None:
            value = codec_inputs.encode_resolve(run_id, wait.step, "result", "ops", result=ticket, **fields)
        elif self.chance.random() < 0.7:
            value = codec_inputs.encode_resolve(run_id, wait.step, "absent", "ops", **fields)
            may_stray = bool(named)
        else:
            value = codec_inputs.encode_resolve(run_id, wait.step, "error", "ops", error="gone", **fields)
        self._answered[doubt] = await self._send(TOPICS.requests, run_id, value, may_stray=may_stray)

    def _is_settled(self, partition: int, offset: int) -> bool:
        return self._history.partitions()[partition].fence.positions.is_settled(TOPICS.requests, offset)

    async def _send(self, topic: str, run_id: str, value: bytes, *, may_stray: bool = True) -> tuple[int, int]:
        """Produce an input; if it ``may_stray``, at times to a wrong partition and at times twice.

        Returns:
            Its partition and offset.
        """
        partition = self._history.of(run_id).partition
        if may_stray and self.chance.random() < 0.1:
            partition = self.chance.randrange(self.system.partitions)
        offset = await self.system.send(topic, run_id, value, partition)
        if may_stray and self.chance.random() < 0.15:
            await self.system.send(topic, run_id, value, partition)
        return partition, offset


def _attempt_of(state: State, wait: Wait) -> int:
    """The attempt that an indeterminate wait is about; 0 for other waits."""
    call = state.call_at(wait.step)
    return 0 if call is None else call.attempt
