"""Sync functions of authors: each in a thread of its own, and the knowledge which of them are still running.

A thread cannot be stopped. So a sync tool may outlive its time-out, and whoever wants to run the same step again
has to know. Daemon threads, one per call, rather than a pool: a hung tool neither takes a pool's place from others
nor keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class WatchesThreads(Protocol):
    """An event loop on virtual time: while a thread is at work, time is real."""

    def thread_started(self, future: Future[Any]) -> None:
        """Take note of a thread; ``future`` is done when it has returned."""
        ...


class Threads:
    """Runs sync functions by key; keys are idempotency keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Future[Any]] = {}
        self._outlived: dict[str, Future[Any]] = {}

    def is_running(self, key: str) -> bool:
        """Whether a thread of this key has not returned yet."""
        return key in self._running

    def late(self, key: str) -> Future[Any] | None:
        """Give the thread of this key that outlived its wait, if nobody has looked since at what it did."""
        return self._outlived.get(key)

    def looked_at(self, key: str) -> None:
        """Take note that somebody looked, after the last thread of this key had returned."""
        self._outlived.pop(key, None)

    def take_late(self, key: str) -> Future[Any] | None:
        """Give, once, the thread of this key that outlived its wait; it has returned if ``returned`` was awaited."""
        return self._outlived.pop(key, None)

    async def returned(self, key: str) -> None:
        """Wait until no thread of this key runs; ``take_late`` tells what it returned or raised."""
        while (earlier := self._running.get(key)) is not None:
            waiter = asyncio.wrap_future(earlier)
            try:
                await asyncio.wait([waiter])
            finally:
                waiter.cancel()  # when the wait itself was: an error that comes later concerns nobody
            waiter.exception()  # looked at, so that asyncio does not report it as forgotten
            self._forget(key, earlier)

    async def run(
        self,
        key: str | None,
        function: Callable[[], Any],
        *,
        is_asked_for: bool = False,
    ) -> Any:  # noqa: ANN401 - the author's value
        """Run ``function`` in a new thread; a cancelled wait leaves the thread running, registered under ``key``.

        ``is_asked_for``: what it said is kept behind a cancelled wait, for ``late`` and ``take_late``.
        """
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # from here on a cancelled waiter cannot cancel it
        if key is not None:
            with self._lock:
                self._running[key] = future
            future.add_done_callback(lambda done: self._forget(key, done))
        context = contextvars.copy_context()
        name = f"runfold {key or 'question'}"
        try:
            start(partial(_work, future, context, function), name)
        except BaseException as error:  # no thread is to be had: this key has none
            future.set_exception(error)
            raise
        loop = asyncio.get_running_loop()
        if isinstance(loop, WatchesThreads):
            loop.thread_started(future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if key is not None and is_asked_for:
                self._outlived[key] = future
            raise

    def _forget(self, key: str, future: Future[Any]) -> None:
        with self._lock:
            if self._running.get(key) is future:
                del self._running[key]


def _start_thread(function: Callable[[], None], name: str) -> None:
    threading.Thread(target=function, name=name, daemon=True).start()


start: Callable[[Callable[[], None], str], None] = _start_thread
"""Starts a thread; the simulation, whose time is virtual, starts none (``runfold.testing.simulation.threads``)."""


def _work(future: Future[Any], context: contextvars.Context, function: Callable[[], Any]) -> None:
    try:
        value = context.run(function)
    except StopIteration as error:  # a future cannot carry it
        future.set_exception(RuntimeError(f"StopIteration: {error}"))
    except Exception as error:  # noqa: BLE001 - handed to the waiter
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit of an author must not end the event loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        future.set_result(value)
