"""Effects in flight: model calls, tool executions and lookups of this process.

They outlive an epoch. A new tenure of the same process attaches to those whose attempt is still open and appends
their outcome: nothing already paid for is thrown away because a broker restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from runfold.core.events import AskedCall
from runfold.core.payload import Payload
from runfold.core.quick import quick
from runfold.ports.agents import Begun, ModelFailure, NotStarted, NotThere, Returned, Unknown

_log = structlog.get_logger(__name__)


class EffectKey(NamedTuple):
    """Which effect: one attempt of one step; a lookup about an attempt is another effect than the attempt."""

    run_id: str
    step: int
    attempt: int
    lookup: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """A completion whose payloads are sealed; fields as in ``ModelResponded``."""

    message: Payload
    message_format: str
    tool_calls: tuple[AskedCall, ...]
    finish_reason: str | None
    usage: tuple[tuple[str, int], ...]
    cost_nano_usd: int | None
    model: str


@quick
@dataclass(frozen=True, slots=True)
class Sealed:
    """A tool's answer whose payloads are sealed."""

    returned: Returned
    result: Payload
    for_model: Payload | None
    patch: Payload | None


@dataclass(frozen=True, slots=True)
class Crashed:
    """Our own code around the effect raised: a defect, or a payload that is gone."""

    error: str


@dataclass(frozen=True, slots=True)
class Unprepared:
    """A payload that it needs is gone: it was certainly not performed, and cannot be before the object is back."""

    error: str


ModelOutcome = Answered | ModelFailure | NotStarted | Crashed
ToolOutcome = Sealed | Unknown | NotThere | Begun | NotStarted | Crashed
EffectOutcome = ModelOutcome | ToolOutcome | Unprepared
Listener = Callable[[EffectKey, EffectOutcome], None]
Work = Callable[[], Coroutine[Any, Any, EffectOutcome]]
"""Called in the effect's own task: one that is cancelled before its first step has begun nothing."""


@dataclass(slots=True)
class _Effect:
    partition: int
    epoch: int
    listener: Listener | None
    task: asyncio.Task[None] | None = None
    outcome: EffectOutcome | None = None


def is_cancelled() -> bool:
    """Whether somebody really cancels this task; else a CancelledError was made by the code that it runs."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Effects:
    """All effects of this process.

    Args:
        group: Owns the tasks; they are cancelled when the process ends.
        on_end: Told of each effect that has ended, whoever listens for its outcome.
    """

    def __init__(self, group: asyncio.TaskGroup, on_end: Callable[[EffectKey], object] | None = None) -> None:
        self._group = group
        self._on_end = on_end
        self._by_run: dict[str, dict[EffectKey, _Effect]] = {}

    def start(self, key: EffectKey, place: tuple[int, int], work: Work, listener: Listener) -> None:
        """Perform: the listener gets the outcome, now or, if it is replaced by ``attach``, later.

        Args:
            key: Which effect.
            place: Partition and epoch of the tenure that listens.
            work: What is done.
            listener: Told of the outcome.
        """
        effect = _Effect(*place, listener)
        self._by_run.setdefault(key.run_id, {})[key] = effect
        # Nameless: a name costs as much as all the rest of a task.
        effect.task = self._group.create_task(self._perform(key, effect, work))

    def attach(self, key: EffectKey, epoch: int, listener: Listener) -> None:
        """Listen to an effect of an earlier epoch; an outcome already known is told at once."""
        effect = self._by_run[key.run_id][key]
        effect.epoch, effect.listener = epoch, listener
        if effect.outcome is not None:
            listener(key, effect.outcome)

    def alive(self, key: EffectKey) -> bool:
        """Whether an effect is in flight, or its outcome is not recorded yet."""
        return key in self._by_run.get(key.run_id, ())

    def performing(self, key: EffectKey) -> bool:
        """Whether an effect has not ended."""
        effect = self._by_run.get(key.run_id, {}).get(key)
        return effect is not None and effect.outcome is None

    def keys(self, run_id: str) -> list[EffectKey]:
        """The effects of one run that are in flight, or whose outcome is not recorded."""
        return list(self._by_run.get(run_id, ()))

    def runs(self, partition: int) -> set[str]:
        """Which runs of a partition have any."""
        return {key.run_id for key, effect in self._all() if effect.partition == partition}

    def running(self, partition: int) -> int:
        """How many effects of a partition have not ended."""
        return sum(effect.outcome is None for _, effect in self._all() if effect.partition == partition)

    def detach(self, partition: int, epoch: int) -> None:
        """The tenure is over: outcomes are kept for the next one of this process, which may listen already."""
        for _, effect in self._all():
            if (effect.partition, effect.epoch) == (partition, epoch):
                effect.listener = None

    def unheard(self) -> list[tuple[int, EffectKey, EffectOutcome]]:
        """Outcomes that are known and that nobody in this process listens for, each with its partition."""
        return [
            (each.partition, key, each.outcome)
            for key, each in self._all()
            if each.outcome is not None and each.listener is None
        ]

    def forget(self, key: EffectKey) -> None:
        """The outcome is in the log, or its attempt is not open any more."""
        effects = self._by_run.get(key.run_id, {})
        effects.pop(key, None)
        if not effects:
            self._by_run.pop(key.run_id, None)

    def cancel(self) -> None:
        """The process ends: cancel what is in flight; its outcome is then for the next owner to find out."""
        for _, effect in self._all():
            if effect.task is not None:
                effect.task.cancel()

    def _all(self) -> Iterator[tuple[EffectKey, _Effect]]:
        return (pair for effects in self._by_run.values() for pair in effects.items())

    async def _perform(self, key: EffectKey, effect: _Effect, work: Work) -> None:
        try:
            outcome = await work()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            outcome = Crashed("it ended with a CancelledError of its own making")
        except Exception as error:  # noqa: BLE001 - the driver is told, and decides by the recovery class
            _log.exception("effect_crashed", run_id=key.run_id, step=key.step, attempt=key.attempt)
            outcome = Crashed(f"{type(error).__name__}: {error}")
        effect.outcome = outcome
        if self._on_end is not None:
            self._on_end(key)
        if effect.listener is not None:
            effect.listener(key, outcome)
        elif self.alive(key):
            _log.info("outcome_kept", run_id=key.run_id, step=key.step, attempt=key.attempt)
