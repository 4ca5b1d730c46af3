"""The harness's event loop, and how calls from any other loop reach it.

Time on this loop is virtual while somebody waits for the harness, and as in real life while nobody does. It is real,
too, while an author's thread is at work, or an author's coroutine runs and a file descriptor is open.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from runfold.testing.simulation.loop import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A thread that is done within this time ends in the very callback that started it: so a run repeats itself.
_THREAD_S = 1.0
# Threads that nobody told of (aiosqlite's, anyio's) wake the loop within this time, or find the clock moved.
_FOREIGN_S = 0.02
_OURS = ("MainThread", "runfold", "asyncio_")


class _Moment(float):
    """A time that comes after an equal one that was asked for earlier.

    asyncio keeps timers in a heap, which says nothing about equal ones: one more timer anywhere (a time-out around a
    scenario) would let others ring in another order, and a process take its steps in another one.
    """

    __slots__ = ("number",)

    number: int

    @classmethod
    def of(cls, when: float, number: int) -> _Moment:
        """Number a time."""
        made = cls(when)
        made.number = number
        return made

    def __lt__(self, other: float) -> bool:
        if isinstance(other, _Moment) and float(self) == float(other):
            return self.number < other.number
        return float(self) < float(other)


class HarnessLoop(VirtualLoop):
    """The loop.

    Attributes:
        callers: How many calls of the harness are being waited for.
        has_callers_elsewhere: They come from another loop: while there is none, time is real.
        at_work: Whether a function of the author is running.
    """

    def __init__(self) -> None:
        super().__init__()
        self.callers = 0
        self.has_callers_elsewhere = False
        self.at_work: Callable[[], bool] = _nothing
        self._threads: set[futures.Future[Any]] = set()
        self._timers = 0
        # As asyncio's own, which it would make by itself, and closes.
        self._pool = futures.ThreadPoolExecutor(thread_name_prefix="asyncio_harness")
        self.set_default_executor(self._pool)

    def is_real(self, has_files: bool) -> bool:  # noqa: FBT001 - the selector's question
        """Whether time passes as it really does."""
        if self._threads:
            return True
        if self.callers:
            return has_files and self.at_work()
        return has_files or self.has_callers_elsewhere

    def patience(self) -> float:
        """Wait a little for threads that nobody told of, while a function of the author may wait for one."""
        is_possible = threading.active_count() > 1 and self.at_work()
        return _FOREIGN_S if is_possible and any(_is_foreign(one) for one in threading.enumerate()) else 0.0

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a time; of equal times, the one that was asked for first comes first."""
        self._timers += 1
        return super().call_at(_Moment.of(when, self._timers), callback, *args, context=context)

    def thread_started(self, future: futures.Future[Any]) -> None:
        """Take note of an author's thread, and give it the time to end here and now."""
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        if futures.wait([future], _THREAD_S).done:
            self._threads.discard(future)  # the thread has it still to do: time would be real for a moment

    def run_in_executor(  # type: ignore[override]  # typeshed's own signature is of variadic generics
        self,
        executor: Any,  # noqa: ANN401 - as asyncio's
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - as asyncio's
    ) -> asyncio.Future[T]:
        """Run in a thread, as ``asyncio.to_thread`` does, and take note of it.

        Not by asyncio's own: the thread would wake the loop some microseconds after it has ended, in another turn each
        time.
        """
        future = (executor or self._pool).submit(func, *args)
        self.thread_started(future)
        return asyncio.wrap_future(future, loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109, ARG002 - as asyncio's
        """Wait for the threads, here and now: for a thread that waits for them, a loop that ends has no time."""
        self._pool.shutdown()


def _nothing() -> bool:
    return False


def _is_foreign(thread: threading.Thread) -> bool:
    return not thread.name.startswith(_OURS) and thread is not threading.current_thread()


class Bridge(Protocol):
    """Where the cluster runs, seen from the author's test."""

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine there, and wait for it: its time is virtual."""
        ...

    def tell(self, work: Callable[[], None]) -> None:
        """Run a function there, before anything that is called later."""
        ...

    async def stop(self) -> None:
        """Close what ``open_bridge`` opened."""
        ...


async def open_bridge() -> Bridge:
    """Give the running loop, if it is virtual, else one in a thread of its own."""
    running = asyncio.get_running_loop()
    return Here(running) if isinstance(running, HarnessLoop) else Elsewhere()


class Here:
    """The test runs on the loop itself."""

    def __init__(self, loop: HarnessLoop) -> None:
        self._loop = loop

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See ``Bridge``."""
        return await _counted(self._loop, work)

    def tell(self, work: Callable[[], None]) -> None:
        """See ``Bridge``."""
        work()

    async def stop(self) -> None:
        """See ``Bridge``."""


class Elsewhere:
    """A loop in a thread of its own; the test runs on whatever it likes."""

    def __init__(self) -> None:
        made: futures.Future[HarnessLoop] = futures.Future()
        self._thread = threading.Thread(target=_run_forever, args=(made,), name="runfold harness", daemon=True)
        self._thread.start()
        self._loop = made.result()

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See ``Bridge``."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_counted(self._loop, work), self._loop))

    def tell(self, work: Callable[[], None]) -> None:
        """See ``Bridge``."""
        self._loop.call_soon_threadsafe(work)

    async def stop(self) -> None:
        """See ``Bridge``."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)


def _run_forever(made: futures.Future[HarnessLoop]) -> None:
    with asyncio.Runner(loop_factory=HarnessLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, HarnessLoop)  # noqa: S101 - for mypy
        loop.has_callers_elsewhere = True
        made.set_result(loop)
        loop.run_forever()


async def _counted(loop: HarnessLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop.callers += 1
    try:
        return await work()
    finally:
        loop.callers -= 1


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on virtual time: what only waits takes no time. A ``Harness`` inside needs no thread."""
    with asyncio.Runner(loop_factory=HarnessLoop) as runner:
        return runner.run(main)
