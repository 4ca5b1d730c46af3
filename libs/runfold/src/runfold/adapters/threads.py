"""Work that blocks, in a thread for which no end of the process waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Do work that cannot be broken off: unlike ``asyncio.to_thread``'s, its thread keeps no process from ending.

    A question to librdkafka lasts ten seconds where something listens that is no Kafka; an import may hang for ever.

    Raises:
        RuntimeError: The work raised a cancellation or a StopIteration, which would be taken for the event loop's own.
    """
    done: Future[T] = Future()

    def do() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(work())
        except (CancelledError, asyncio.CancelledError, StopIteration) as error:
            told = RuntimeError(f"{type(error).__name__}: {error}")
            told.__cause__ = error
            done.set_exception(told)
        except BaseException as error:  # noqa: BLE001 - raised to who asked, whatever it is
            done.set_exception(error)

    threading.Thread(target=do, name="runfold-work", daemon=True).start()
    return await asyncio.wrap_future(done)
