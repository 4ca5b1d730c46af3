"""Crashes at an event: armed beforehand, sprung in the log client of the process that appends it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from runfold.adapters.memory.broker import MemoryBroker, Stored
from runfold.adapters.memory.log import MemoryLog
from runfold.codec.log import decode, type_name
from runfold.core import events
from runfold.core.events import Event, InputSettled, LogRecordBody, PartitionClaimed
from runfold.ports.log import OnAck

EVENT_TYPES = {type_name(one): one for one in events.Event.__args__}


@dataclass(eq=False)
class Trap:
    """One crash.

    Attributes:
        event: Type of the event; None: it has happened when it is made.
        before: The process dies before the event is durable, not right after.
        step, run_id: Which one; None: the first.
        where: Once it has happened: which process died, and at what.
    """

    event: str | None = None
    before: bool = False
    step: int | None = None
    run_id: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        named = f"{'before' if self.before else 'after'}={self.event!r}" if self.event else "now"
        named += "" if self.step is None else f", step={self.step}"
        return f"crash({named}{'' if self.run_id is None else f', run_id={self.run_id!r}'})"

    def matches(self, body: Event) -> bool:
        """Whether this is the event."""
        return (
            self.where is None
            and type_name(type(body)) == self.event
            and self.step in (None, getattr(body, "step", None))
            and self.run_id in (None, body.run_id)
        )


def armed(after: str | None, before: str | None, step: int | None, run_id: str | None) -> Trap:
    """Make a trap of what the author says.

    Raises:
        ValueError: There can be no such event.
    """
    if after is not None and before is not None:
        raise ValueError("a crash is after an event or before one: give after= or before=, not both")
    event = after if after is not None else before
    if event is None:
        if step is not None or run_id is not None:
            raise ValueError("crash() without after= or before= kills the executor now: step and run_id say nothing")
        return Trap()
    if event not in EVENT_TYPES:
        raise ValueError(f"{event!r} is no type of event; those that there are: {', '.join(EVENT_TYPES)}")
    if step is not None and "step" not in EVENT_TYPES[event].__dataclass_fields__:
        raise ValueError(f"{event} belongs to no step: leave step= out")
    return Trap(event, before is not None, step, run_id)


class TrappedLog(MemoryLog):
    """The log client of a process that traps may kill.

    Args:
        broker: The log's.
        traps: Those that are armed; asked at each record.
        spring: Kills the process that is running now.
    """

    def __init__(self, broker: MemoryBroker, traps: list[Trap], spring: Callable[[Trap, Event], None]) -> None:
        super().__init__(broker)
        self._traps = traps
        self._spring = spring

    def _land(self, partition: int, record: Stored, on_ack: OnAck) -> None:
        if not self._traps:
            super()._land(partition, record, on_ack)
            return
        body = decode(record.value or b"")
        if self._sprung(body, before=True):
            return
        super()._land(partition, record, on_ack)
        self._sprung(body, before=False)

    def _sprung(self, body: LogRecordBody, *, before: bool) -> bool:
        if isinstance(body, PartitionClaimed | InputSettled):
            return False
        found = next((trap for trap in self._traps if trap.before is before and trap.matches(body)), None)
        if found is not None:
            self._spring(found, body)
        return found is not None


class Crash:
    """A crash that was armed. Awaited, it gives itself once it has happened, or once nothing moves any more."""

    def __init__(self, trap: Trap, wait: Callable[[Trap], Generator[Any, None, None]]) -> None:
        self._trap = trap
        self._wait = wait

    def __await__(self) -> Generator[Any, None, Crash]:
        yield from self._wait(self._trap)
        return self

    def __repr__(self) -> str:
        return f"<{self._trap}: {self.where or 'armed'}>"

    @property
    def happened(self) -> bool:
        """Whether a process was killed."""
        return self._trap.where is not None

    @property
    def where(self) -> str | None:
        """Which process died, and at what; None: it is still armed."""
        return self._trap.where
