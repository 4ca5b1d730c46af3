"""What a tool is told of its execution."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runfold.core.quick import quick
from runfold.sdk.errors import NoTransaction

if TYPE_CHECKING:
    from psycopg import AsyncConnection

DepsT_co = TypeVar("DepsT_co", covariant=True)


class StateView(Mapping[str, Any]):
    """The run's state, read-only; a value is parsed when it is first read."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: Mapping[str, bytes]) -> None:
        self._raw = raw
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - whatever the author's patches held
        if key not in self._parsed:
            self._parsed[key] = json.loads(self._raw[key])
        return self._parsed[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"StateView({sorted(self._raw)})"


@quick
@dataclass(frozen=True, slots=True)
class ToolContext(Generic[DepsT_co]):
    """The first parameter of a tool, a lookup or an approval function that asks for it by this annotation.

    Attributes:
        deps: What the app's lifespan gave.
        idempotency_key: ``run_id:step``, the same on every attempt. Hand it to the system that has the effect.
        run_id: The run.
        step: The step of this call.
        attempt: 1 for the first execution of this step.
        tool_call_id: The model's id of the call.
        state: The run's state before this turn, key -> JSON value; change it with ``Result(patch=...)``. A lookup
            that the reconciler asks may see a slightly older one.
        deadline: When the call times out, in seconds of the event loop's clock: for ``asyncio.timeout_at``.
    """

    deps: DepsT_co
    idempotency_key: str
    run_id: str
    step: int
    attempt: int
    tool_call_id: str
    state: Mapping[str, Any]
    deadline: float
    clock: Callable[[], float] = field(repr=False, compare=False)
    transaction: AsyncConnection[Any] | None = field(default=None, repr=False, compare=False)

    @property
    def connection(self) -> AsyncConnection[Any]:
        """The connection of a TRANSACTIONAL tool, inside the transaction that will hold its idempotency key.

        What is written through it becomes true together with the tool's outcome, or not at all. Runfold commits: do
        not end the transaction, and keep nothing of the connection when the tool returns.
        ``async with ctx.connection.transaction():`` gives a savepoint.

        Raises:
            NoTransaction: This is no TRANSACTIONAL tool's execution.
        """
        if self.transaction is None:
            message = (
                "ctx.connection belongs to the execution of a tool with recovery=Recovery.TRANSACTIONAL; "
                "other tools, lookups and approval functions bring their own, for example in ctx.deps"
            )
            raise NoTransaction(message)
        return self.transaction

    def seconds_left(self) -> float:
        """Seconds until the deadline, never negative; may be called from a sync tool's thread."""
        return max(0.0, self.deadline - self.clock())
