"""Sync tools without threads: a real thread would take real time, and end when it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from runfold.core.policy import GRACE_S
from runfold.sdk import threads
from runfold.testing.simulation.book import Book, now


@contextmanager
def virtual_threads(chance: Random, book: Book) -> Iterator[None]:
    """Run the sync functions of authors on the loop, each in one go, when the time that it "takes" is over.

    That time is drawn. It may be longer than the tool's time-out, and nothing stops the function then either; but it is
    shorter than the grace, and so is a pause of its process meanwhile: a thread that sends later than that is the
    documented exception of LOOKUP and MANUAL tools, and nobody can be safe from it (``Book.exposed``).
    """

    def start(function: Callable[[], None], name: str) -> None:  # noqa: ARG001 - a thread's
        seconds = chance.random() * chance.choice([0.01, 0.5, 0.5, 4.0])
        exposed = book.exposed(now() + GRACE_S)
        exposed.__enter__()

        def work() -> None:
            try:
                function()
            finally:
                exposed.__exit__(None, None, None)

        asyncio.get_running_loop().call_later(seconds, work)

    before = threads.start
    threads.start = start
    try:
        yield
    finally:
        threads.start = before
