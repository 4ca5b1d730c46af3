"""The effects table in memory: the twin of ``adapters.postgres.effects``, held to the same contract suite."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runfold.core.events import Outcome
from runfold.ports.agents import Begun, Returned
from runfold.ports.effects import CommitUnknown, Effect, EffectsUnavailable, KeyHeld, Work

Key = tuple[str, int]
CommitFate = Literal["answered", "unanswered", "lost"]


@dataclass(frozen=True, slots=True)
class _Row:
    attempt: int
    holder: str | None = None
    returned: Returned | None = None


@dataclass(slots=True)
class MemoryEffectsDatabase:
    """The server, which every process of a test shares.

    Attributes:
        available: False: nothing can be reached.
        committed: The author's statements and their parameters, in the order of their commits.
        fate: Decides what becomes of a COMMIT: answered; done and unanswered; lost, which undoes it.
    """

    available: bool = True
    committed: list[tuple[Any, Any]] = field(default_factory=list)
    fate: Callable[[Effect], CommitFate] = field(default=lambda _: "answered")
    rows: dict[Key, _Row] = field(default_factory=dict)
    held: dict[Key, asyncio.Event] = field(default_factory=dict)


class NothingToRead:
    """What a noted statement gives: no rows, and a word about it to whoever wants some."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never given
        raise AttributeError(
            f"there is no {name!r} here: the in-memory connection of a TRANSACTIONAL tool notes statements and reads "
            "nothing; for a tool that reads, say what it finds: Harness(..., effects=...), see docs/testing.md",
            name=name,
            obj=self,
        )

    def __aiter__(self) -> AsyncIterator[Any]:
        rows: AsyncIterator[Any] = self.__getattr__("rows")
        return rows


class MemoryConnection:
    """What a TRANSACTIONAL tool is handed: it notes statements, which become true with the commit."""

    def __init__(self) -> None:
        self.statements: list[tuple[Any, Any]] = []
        self.is_ended = False

    async def execute(self, query: Any, params: Any = None) -> NothingToRead:  # noqa: ANN401 - as psycopg's
        """Note a statement.

        Raises:
            EffectsUnavailable: The server has ended the session, which was idle for too long.
        """
        if self.is_ended:
            raise EffectsUnavailable("the session was ended: idle in transaction")
        self.statements.append((query, params))
        return NothingToRead()


class MemoryEffects:
    """See ``ports.effects.EffectsTable``. One per process, on a shared database."""

    def __init__(self, database: MemoryEffectsDatabase) -> None:
        self._database = database

    async def perform(self, effect: Effect, wait_s: float, hold_s: float, work: Work) -> Returned | Begun:
        """See ``ports.effects.EffectsTable``."""
        async with self._holding(effect, wait_s, hold_s) as connection:
            stored = self._stored((effect.run_id, effect.step))
            if stored is not None:
                return stored
            returned = await work(connection)
            database = self._reach()
            if connection.is_ended:
                raise EffectsUnavailable("the session was ended: idle in transaction")
            fate = database.fate(effect)
            if fate != "lost":
                database.rows[effect.run_id, effect.step] = _Row(effect.attempt, None, returned)
                if returned.outcome is Outcome.SUCCESS:
                    database.committed.extend(connection.statements)
            if fate != "answered":
                raise CommitUnknown("COMMIT was sent and not answered")
            return returned

    @asynccontextmanager
    async def _holding(self, effect: Effect, wait_s: float, hold_s: float) -> AsyncIterator[MemoryConnection]:
        """Hold the key as a transaction does, until the end or until the server ends an idle session."""
        key = (effect.run_id, effect.step)
        await self._wait_for(key, wait_s)
        database, connection, freed = self._reach(), MemoryConnection(), asyncio.Event()
        database.held[key] = freed

        def free() -> None:
            if database.held.get(key) is freed:
                del database.held[key]
            freed.set()

        def end_session() -> None:
            connection.is_ended = True
            free()

        # The server's timer, whatever becomes of the process that began the transaction.
        timer = asyncio.get_running_loop().call_later(hold_s, end_session, context=contextvars.Context())
        try:
            yield connection
        finally:
            timer.cancel()
            free()

    async def _wait_for(self, key: Key, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                while (held := self._reach().held.get(key)) is not None:
                    await held.wait()
        except TimeoutError as error:
            raise KeyHeld(f"another execution holds the key {key[0]}:{key[1]} in its transaction") from error

    async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
        """See ``ports.effects.EffectsTable``."""
        rows = self._reach().rows
        key, mine = (effect.run_id, effect.step), _Row(effect.attempt, holder)
        row = rows.get(key)
        is_settled = row is not None and row.attempt < effect.attempt and row.attempt <= absent_upto
        if row is None or row == mine or (is_settled and row.returned is None):
            rows[key] = mine
            return None
        return self._stored(key)

    async def release(self, effect: Effect, holder: str) -> None:
        """See ``ports.effects.EffectsTable``."""
        rows = self._reach().rows
        if rows.get((effect.run_id, effect.step)) == _Row(effect.attempt, holder):
            del rows[effect.run_id, effect.step]

    async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
        """See ``ports.effects.EffectsTable``."""
        rows = self._reach().rows
        if rows.get((effect.run_id, effect.step)) == _Row(effect.attempt, holder):
            rows[effect.run_id, effect.step] = _Row(effect.attempt, holder, returned)

    async def find(self, run_id: str, step: int) -> Returned | Begun | None:
        """See ``ports.effects.EffectsTable``."""
        return self._stored((run_id, step))

    async def close(self, effect: Effect, returned: Returned, wait_s: float) -> Returned | Begun:
        """See ``ports.effects.EffectsTable``."""
        key = (effect.run_id, effect.step)
        await self._wait_for(key, wait_s)
        self._reach().rows.setdefault(key, _Row(effect.attempt, None, returned))
        stored = self._stored(key)
        if stored is None:
            raise EffectsUnavailable("it was released while it was being closed")
        return stored

    def _stored(self, key: Key) -> Returned | Begun | None:
        row = self._reach().rows.get(key)
        if row is None:
            return None
        return Begun(row.attempt) if row.returned is None else replace(row.returned, from_table=True)

    def _reach(self) -> MemoryEffectsDatabase:
        if not self._database.available:
            raise EffectsUnavailable("the in-memory effects table is switched off")
        return self._database
