"""An event loop on virtual time, shared by simulated processes that can be paused and killed at every await.

When nothing is ready the loop does not sleep, it moves its clock to the next timer. While somebody waits for
something real (a socket, an author's thread) time passes as it really does.

Every callback belongs to the process in whose context it was scheduled (``Process.current``); those of none belong to
the world: brokers, tests, people. A callback is what runs between two awaits, so a process that is stopped before its
*n*-th callback is stopped at its *n*-th await. A killed process runs nothing more, no ``finally`` either, as after
SIGKILL. What a paused one would have run is kept, in order, for when it wakes up, as after SIGSTOP and SIGCONT; its
timers go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("runfold_process", default=None)


class DeadlockError(Exception):
    """Virtual time cannot go on: every task waits for another."""


class Condition(Enum):
    """What a process does."""

    RUNNING = auto()
    PAUSED = auto()
    DEAD = auto()


class Process:
    """One simulated process.

    Attributes:
        name: For people.
        condition: Running, paused or dead.
        steps: How many callbacks it has run.
        pauses: How often it was paused.
        on_step: Called before each callback, with this process; it may pause or kill it.
        tasks: Its tasks that have not ended, in the order of their creation.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.condition = Condition.RUNNING
        self.steps = 0
        self.pauses = 0
        self.on_step: Callable[[Process], None] | None = None
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._backlog: deque[_Call] = deque()
        self._context = contextvars.copy_context()
        self._context.run(_CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name}: {self.condition.name.lower()}, {self.steps} steps>"

    @staticmethod
    def current() -> Process | None:
        """Give the process whose code runs now; None: the world's."""
        return _CURRENT.get()

    def spawn(self, main: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in this process; whatever it schedules belongs to the process too."""
        return asyncio.get_running_loop().create_task(main, name=name or self.name, context=self._context.copy())

    def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Call a function now, in this process's context: what it schedules belongs to the process."""
        return self._context.copy().run(function, *args)

    def pause(self) -> None:
        """SIGSTOP: run nothing until ``resume``."""
        if self.condition is Condition.RUNNING:
            self.condition = Condition.PAUSED
            self.pauses += 1

    def resume(self) -> None:
        """SIGCONT: run what came meanwhile, in its order, and go on."""
        if self.condition is not Condition.PAUSED:
            return
        self.condition = Condition.RUNNING
        asyncio.get_running_loop().call_soon(self._catch_up, context=contextvars.Context())

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more."""
        self.condition = Condition.DEAD

    def bury(self) -> list[asyncio.Task[Any]]:
        """Let the tasks of a dead process end, when nobody looks any more; gives them, cancelled.

        Until then they hang where they were killed: a coroutine that is thrown away would run its ``finally`` blocks.
        """
        self.condition = Condition.RUNNING
        self.on_step = None
        for task in self.tasks:
            task.cancel()
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._catch_up, context=contextvars.Context())
        return list(self.tasks)

    def enter(self, call: _Call) -> None:
        """Run a callback, or keep it: for when the process wakes up, or is buried."""
        if self.condition is Condition.RUNNING and not self._backlog:
            self.steps += 1
            if self.on_step is not None:
                self.on_step(self)
        # Asked again: ``on_step`` may have stopped it.
        if self.condition is not Condition.RUNNING or self._backlog:
            self._backlog.append(call)
        else:
            call.run()

    def _is_behind(self) -> bool:
        return self.condition is Condition.RUNNING and bool(self._backlog)

    def _catch_up(self) -> None:
        """Run what was kept, one callback a turn: each is a step at which it may be stopped again."""
        if not self._is_behind():
            return
        call = self._backlog.popleft()
        kept, self._backlog = self._backlog, deque()
        self.enter(call)
        self._backlog += kept
        if self._is_behind():
            asyncio.get_running_loop().call_soon(self._catch_up, context=contextvars.Context())


class _Call:
    """One callback of a process, and the handle by which its scheduler may cancel it."""

    __slots__ = ("args", "callback", "context", "handle")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        if self.handle is not None and self.handle.cancelled():
            return
        self.context.run(self.callback, *self.args)


class _Selector(selectors.SelectSelector):
    """Selects without waiting, and passes the time that it would have waited to the loop's clock.

    Args:
        is_real: Whether something real may come, told whether a file descriptor beside the loop's own is registered.
        patience: Seconds really waited for a wake-up from elsewhere before the clock is moved.
    """

    def __init__(self, is_real: Callable[[bool], bool], patience: Callable[[], float]) -> None:
        super().__init__()
        self.now = 0.0
        self._is_real = is_real
        self._patience = patience
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._is_real(len(self.get_map()) > 1):
            return self._really(timeout)
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set: every task waits for another")
        if timeout <= 0:
            # The loop is busy: what is real may wait for some turns, and a system call a turn costs more than the turn.
            self._turns += 1
            return super().select(0) if self._turns % _TURNS == 0 else []
        ready = super().select(self._patience())
        if not ready:
            self.now += timeout
        return ready

    def _really(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, but look again soon: what is real may end without a word to this selector."""
        began = time.monotonic()
        ready = super().select(_LOOK_AGAIN_S if timeout is None else min(timeout, _LOOK_AGAIN_S))
        self.now += time.monotonic() - began
        return ready


_LOOK_AGAIN_S = 0.05
_TURNS = 20


def _never() -> bool:
    return False


class _Task(asyncio.Task[T]):
    """A task that takes the place in a set that its number gives it, not its address: asyncio keeps sets of tasks."""

    def __init__(
        self,
        number: int,
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> None:
        self.number = number  # before asyncio puts it into its first set
        super().__init__(coroutine, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop.

    Args:
        is_busy: Whether something that this loop cannot see (a thread) is at work: then time is real.
    """

    def __init__(self, is_busy: Callable[[], bool] = _never) -> None:
        self._is_busy = is_busy
        self._selector_ = _Selector(self.is_real, self.patience)
        super().__init__(self._selector_)
        self._created = 0
        # One a loop: two threads cannot be in the same context at once.
        self._world = contextvars.Context()
        self._ident = threading.get_ident()
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._selector_.now

    def skip(self, seconds: float) -> None:
        """Move the clock, as if the whole machine had slept: every timer that has come due rings once."""
        self._selector_.now += seconds

    def is_real(self, has_files: bool) -> bool:  # noqa: FBT001 - the selector's question
        """Whether time passes as it really does: a file descriptor or a thread may have something to say."""
        return has_files or self._is_busy()

    def patience(self) -> float:
        """Seconds really waited for a wake-up from elsewhere before the clock is moved."""
        return 0.0

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback of whoever's context it is."""
        context = contextvars.copy_context() if context is None else context  # an empty one is false
        process = context.get(_CURRENT)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        call = _Call(callback, args, context)
        call.handle = super().call_soon(process.enter, call, context=self._world)
        return call.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback of whoever's context it is for a time."""
        context = contextvars.copy_context() if context is None else context  # an empty one is false
        process = context.get(_CURRENT)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        call = _Call(callback, args, context)
        call.handle = handle = super().call_at(when, process.enter, call, context=self._world)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback from another thread; from this one, as ``call_soon`` does."""
        if threading.get_ident() == self._ident:
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _make_task(
        self,
        _: asyncio.AbstractEventLoop,
        coroutine: Any,  # noqa: ANN401 - typeshed's word for what is awaited
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        self._created += 1
        context = contextvars.copy_context() if context is None else context  # an empty one is false
        task: _Task[Any] = _Task(self._created, coroutine, self, context)
        process = context.get(_CURRENT)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None), context=self._world)
        return task


def run_virtual(main: Coroutine[Any, Any, T], limit_s: float = 3600.0, is_busy: Callable[[], bool] = _never) -> T:
    """Run on a fresh virtual loop; more than ``limit_s`` virtual seconds is a failure."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(is_busy)) as runner:
        return runner.run(_limited(main, limit_s))


async def _limited(main: Coroutine[Any, Any, T], limit_s: float) -> T:
    async with asyncio.timeout(limit_s):
        return await main
