"""Outcomes that this process knows of calls whose partition it does not own any more: told to the owner as a verdict.

After an outage that outlasts a session the group assigns everything anew, and half of what a process was doing belongs
to another one. Its calls go on here, and only here is known how they ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from runfold.codec.input_types import BadInput, VerdictInput
from runfold.codec.inputs import encode_verdict
from runfold.ports.log import RecordTooLarge
from runfold.ports.publisher import Publisher, PublishFailed
from runfold.runtime.executor.effects import EffectKey, Effects, Sealed
from runfold.runtime.executor.settings import ExecutorSettings

_log = structlog.get_logger(__name__)
_EVERY_S = 0.5


class Orphans:
    """Tells them, one verdict for each; an owner whose fold has the attempt closed already settles it as stale.

    Args:
        owns: Whether a partition is this process's: then its next epoch here appends what is known.
    """

    def __init__(
        self, effects: Effects, publisher: Publisher, settings: ExecutorSettings, owns: Callable[[int], bool]
    ) -> None:
        self._effects = effects
        self._publisher = publisher
        self._settings = settings
        self._owns = owns
        self._told: set[EffectKey] = set()

    async def serve(self) -> None:
        """Look again and again; publishing waits as long as Kafka is away."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for partition, key, outcome in self._effects.unheard():
                if isinstance(outcome, Sealed) and not (key.lookup or key in self._told or self._owns(partition)):
                    await self._tell(key, outcome)

    async def _tell(self, key: EffectKey, outcome: Sealed) -> None:
        place = {"run_id": key.run_id, "step": key.step, "attempt": key.attempt}
        verdict = VerdictInput(
            run_id=key.run_id,
            step=key.step,
            attempt=key.attempt,
            outcome="found",
            verdict_by=self._settings.owner,
            result=outcome.returned.result,
            for_model=outcome.returned.for_model,
            patch=outcome.returned.patch,
            result_outcome=outcome.returned.outcome,
        )
        try:
            value = encode_verdict(verdict)
            await self._publisher.publish(self._settings.topics.control, key.run_id.encode(), value)
        except PublishFailed as error:
            _log.warning("orphan_not_told", error=str(error), **place)
            return
        except (BadInput, RecordTooLarge) as error:
            # Its owner goes by the recovery class, as if this process had died.
            _log.error("orphan_untellable", error=str(error), **place)
        else:
            _log.info("orphan_told", **place)
        # Kept all the same: the partition may come back, and then the outcome is appended from here.
        self._told.add(key)
