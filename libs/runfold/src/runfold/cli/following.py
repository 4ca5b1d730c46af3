"""``start --wait``: show what happens, say what the run waits for and what lifts it, end with the run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from runfold.cli.event_lines import event_header, event_line
from runfold.cli.running import FAILED, CommandError, say
from runfold.cli.words import lifts, short, wait_notice, waits_for

if TYPE_CHECKING:
    from runfold.client import Client

QUIET_S = 0.3
"""A wait is told when nothing has happened for so long: one of the past, read back, is over within that time."""


async def wait_for_end(client: Client, run_id: str, timeout_s: float | None) -> None:
    """Show progress on stderr until the run has ended; its output on stdout.

    Raises:
        CommandError: It ended without an output, or ``timeout_s`` is over; the message says why.
    """
    watch = Watch()
    say(event_header())
    try:
        async with asyncio.timeout(timeout_s), aclosing(client.events(run_id, follow=True, may_start=True)) as events:
            await watch.follow(events)
    except TimeoutError:
        message = f"run {run_id} has not ended within {timeout_s:g} s, and goes on: {watch.standing}"
        raise CommandError(message, FAILED) from None
    last = watch.last
    if last["type"] == "run_completed":
        sys.stdout.write(json.dumps(last["output"], ensure_ascii=False) + "\n")
        return
    how = str(last["type"]).removeprefix("run_")
    raise CommandError(f"run {run_id} ended as {how}: {last.get('error') or last.get('reason') or 'no reason'}", FAILED)


class Watch:
    """What was seen of a run: its last event, its open waits, and which of them a person was told of."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self._waits: dict[str, dict[str, Any]] = {}
        self._told: set[str] = set()
        self._reassured = False

    async def follow(self, events: AsyncGenerator[Any, None]) -> None:
        """Say each event, and each wait that stays open, until there is nothing more."""
        loop = asyncio.get_running_loop()
        telling: asyncio.TimerHandle | None = None
        try:
            async for event in events:
                if telling is not None:
                    telling.cancel()
                say(event_line(event))
                self._note(event)
                telling = loop.call_later(QUIET_S, self._tell_waits)
        finally:
            if telling is not None:
                telling.cancel()

    @property
    def standing(self) -> str:
        """Where the run stands, for a person who waits no longer."""
        if self._waits:
            waits = [
                f"it waits for {short(waits_for(wait), 200)}; next: {lifts(wait)}" for wait in self._waits.values()
            ]
            return "; ".join(waits)
        if not self.last:
            return "no executor has started it; are `runfold-step-executor` processes running?"
        return f"its last event is {self.last['type']} (seq {self.last['seq']})"

    def _note(self, event: dict[str, Any]) -> None:
        self.last = event
        if event["type"] == "interrupted":
            self._waits[event["wait_id"]] = event
        elif event["type"] == "resumed":
            self._waits.pop(event["wait_id"], None)

    def _tell_waits(self) -> None:
        for wait_id, wait in self._waits.items():
            if wait_id not in self._told:
                self._told.add(wait_id)
                say(wait_notice(wait))
                if not self._reassured:
                    self._reassured = True
                    say("  still waiting for its end; Ctrl-C does no harm, the run goes on without this command")
