"""Following a run through `runfold events --follow`, with a bound, and hearing at once of a service that died."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from demo.errors import DemoError
from demo.installation import Installation
from demo.processes import BIN, Services

Json = Any
_TICK_S: Final = 0.2
_END_S: Final = 10.0


class Follower:
    """The events of one run as they come, read by the operator's own command; as a context manager it ends it.

    Attributes:
        seen: All events so far.
    """

    def __init__(self, installation: Installation, services: Services, run_id: str) -> None:
        self.seen: list[Json] = []
        self._installation = installation
        self._services = services
        self._run_id = run_id
        self._lines: queue.Queue[str] = queue.Queue()
        self._command: subprocess.Popen[str] | None = None
        self._is_over = threading.Event()
        self._reading = threading.Thread(target=self._read, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._command is not None:
            self._command.terminate()
        self._reading.join(_END_S)

    def until(self, what: str, found: Callable[[Json], bool], timeout_s: float = 60.0) -> Json:
        """Give the first event for which ``found`` is true, of those seen already or those to come.

        Raises:
            DemoError: It does not come in time, or a service died.
        """
        deadline = time.monotonic() + timeout_s
        for event in self.seen:
            if found(event):
                return event
        while time.monotonic() < deadline:
            try:
                event = json.loads(self._lines.get(timeout=_TICK_S))
            except queue.Empty:
                self._services.check()
                continue
            self.seen.append(event)
            if found(event):
                return event
        last = self.seen[-1] if self.seen else "no event at all"
        raise DemoError(f"expected within {timeout_s:.0f} s: {what}; the last that happened is {last}")

    def _read(self) -> None:
        """Read lines; begin again while there is no such run yet (the command then ends at once)."""
        while not self._is_over.is_set():
            with subprocess.Popen(
                [str(BIN / "runfold"), "events", self._run_id, "--follow", "--json"],
                env=dict(self._installation.environment),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as self._command:
                any_line = False
                for line in self._command.stdout or ():
                    any_line = True
                    self._lines.put(line)
            if any_line:
                return


def await_state(services: Services, what: str, ask: Callable[[], Json | None], timeout_s: float = 60.0) -> Json:
    """Ask again and again until the answer is not None; gives it.

    Raises:
        DemoError: It stays None, or a service died.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        services.check()
        threading.Event().wait(_TICK_S)
    raise DemoError(f"expected within {timeout_s:.0f} s: {what}")
