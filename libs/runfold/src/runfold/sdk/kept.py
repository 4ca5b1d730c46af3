"""Calls whose outcome the effects table keeps: TRANSACTIONAL ones, and those of ``dedupe=True``."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from runfold.ports.agents import Begun, Invocation, NotStarted, NotThere, Returned, Unknown
from runfold.ports.effects import Effect, EffectsTable, EffectsUnavailable, KeyHeld

_log = structlog.get_logger(__name__)
_NO_TABLE = (
    "the request was made for a tool whose outcome the effects table keeps, and this process has no effects table: its "
    "app has no such tool any more"
)


class Kept:
    """Asks the effects table; without one, every answer is that nobody knows."""

    def __init__(self, table: EffectsTable | None) -> None:
        self._table = table

    async def in_transaction(
        self, call: Invocation, tool: Callable[[Any], Awaitable[Returned]]
    ) -> Returned | Unknown | NotStarted:
        """Execute a TRANSACTIONAL call; what the tool raises is raised, and has had no effect.

        ``may_start`` is asked before the transaction, not in it: the wait for a connection or for another holder of the
        key may take long, and needs no fresh acknowledgement behind it. Who has lost the partition meanwhile can commit
        only what nobody else has committed or closed, and the new owner finds it.

        Args:
            call: The call.
            tool: Calls the tool with the connection.
        """
        if self._table is None:
            return Unknown(_NO_TABLE)
        if not call.may_start():
            return NotStarted()
        try:
            done = await self._table.perform(_effect(call), call.timeout_s, call.timeout_s + call.grace_s, tool)
        except KeyHeld as error:
            return Unknown(str(error), timed_out=True)
        except EffectsUnavailable as error:
            return Unknown(str(error))
        return Unknown("the tool ended its transaction by itself") if isinstance(done, Begun) else done

    async def once(self, call: Invocation, tool: Callable[[], Awaitable[Returned]]) -> Returned | Unknown | NotStarted:
        """Execute a call whose downstream knows no keys: claim, call, record.

        What the tool raises is raised: the claim stays without an outcome, since nobody knows it.
        """
        if self._table is None:
            return Unknown(_NO_TABLE)
        effect, holder = _effect(call), secrets.token_hex(8)
        try:
            claimed = await self._table.claim(effect, call.absent_upto, holder)
        except EffectsUnavailable as error:
            return Unknown(f"it was not called: {error}")
        if isinstance(claimed, Begun):
            return Unknown(f"it was not called: attempt {claimed.attempt} began, and nobody knows how it ended")
        if claimed is not None:
            return claimed
        if not call.may_start():
            return await self._released(self._table, effect, holder)
        returned = await tool()
        try:
            await self._table.record(effect, holder, returned)
        except EffectsUnavailable as error:
            # It is known all the same, and will stand in the log; only a crash before that would lose it.
            _log.warning("outcome_not_in_effects_table", key=call.idempotency_key, error=str(error))
        return returned

    @staticmethod
    async def _released(table: EffectsTable, effect: Effect, holder: str) -> NotStarted | Unknown:
        try:
            await table.release(effect, holder)
        except EffectsUnavailable as error:
            return Unknown(f"it was not called, but that could not be said in the effects table: {error}")
        return NotStarted()

    async def find(self, call: Invocation) -> Returned | NotThere | Begun | Unknown:
        """Ask what became of a call."""
        if self._table is None:
            return Unknown(_NO_TABLE)
        try:
            found = await self._table.find(call.run_id, call.step)
        except EffectsUnavailable as error:
            return Unknown(str(error))
        return NotThere() if found is None else found

    async def close(self, call: Invocation, returned: Returned) -> Returned | Begun | Unknown:
        """See ``RunningAgent.close``."""
        if self._table is None:
            return Unknown(_NO_TABLE)
        try:
            return await self._table.close(_effect(call), returned, call.timeout_s + call.grace_s)
        except EffectsUnavailable as error:
            return Unknown(str(error))


def _effect(call: Invocation) -> Effect:
    return Effect(call.run_id, call.step, call.attempt)
