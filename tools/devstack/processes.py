"""Server processes: started detached, recognised again by pid and start time, stopped by pid and nothing else."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from devstack.errors import StackError

# How long one look at a starting server lasts; it ends at once when the process dies.
_TICK_S: Final = 0.05
_LOG_TAIL_LINES: Final = 25
_KILLED_S: Final = 10.0
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for ever: a pid alone may belong to somebody else tomorrow."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self:
        """Identify a process that is running now."""
        return cls(pid, _start_time(pid) or "gone")

    def alive(self) -> bool:
        """Say whether this very process still runs (a zombie does not)."""
        return _start_time(self.pid) == self.started


def _start_time(pid: int) -> str | None:
    """Return the start time of a running process in the system's own notation, None if it is gone."""
    if not _PROC.is_dir():
        return _start_time_from_ps(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # proc(5): the name in brackets may contain anything; after it come state (3rd field) … starttime (22nd).
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _start_time_from_ps(pid: int) -> str | None:
    """Do the same where there is no /proc (macOS)."""
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607 - ps is in PATH on every system without /proc
    state, _, started = told.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _children(parent: int) -> list[int]:
    """Return the pids of a process's children."""
    if not _PROC.is_dir():
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout  # noqa: S607 - as above
        pairs = [tuple(map(int, line.split())) for line in listing.splitlines()]
        return [pid for pid, of in pairs if of == parent]
    found = []
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


class ServerProcess:
    """One server as a child process in its own session, with its output in a log file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._log = log
        with log.open("ab") as output:
            # A session of its own: Ctrl-C in the terminal is for the program that uses the server, not for the server.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=dict(environment),
                start_new_session=True,
            )
        self.identity = Identity.of(self._child.pid)

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Return when `ready` says so; raise StackError with the log's tail if the process dies or time runs out."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            try:
                code = self._child.wait(_TICK_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self.kill()
                self._fail(f"was not ready after {timeout_s:.0f} s")
            else:
                self._fail(f"ended with code {code} while starting")

    def _fail(self, what: str) -> None:
        message = f"{self.name} {what}: {' '.join(self._command)}\n{log_tail(self._log)}"
        raise StackError(message)

    def stop(self, sign: signal.Signals, timeout_s: float) -> None:
        """Ask the process to end, and kill it if it has not ended in time."""
        self._signal(sign)
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL the process and what it has forked, as a power cut would, and wait until all are gone."""
        # Stopped first, so that it forks nothing more while its children are listed. Postgres' sessions would
        # otherwise answer for some milliseconds after their parent's death.
        self._signal(signal.SIGSTOP)
        forked = [Identity.of(pid) for pid in _children(self._child.pid)]
        self._signal(signal.SIGKILL)
        for child in forked:
            stop_foreign(child, signal.SIGKILL, _KILLED_S)
        self._child.wait()

    def _signal(self, sign: signal.Signals) -> None:
        if self._child.poll() is None:
            self._child.send_signal(sign)


def log_tail(log: Path) -> str:
    """Return the last lines of a server's log, for an error message."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"(no log at {log})"
    return "\n".join([f"--- the end of {log}", *lines[-_LOG_TAIL_LINES:], "---"])


def stop_foreign(identity: Identity, sign: signal.Signals, timeout_s: float) -> None:
    """Stop a process that an earlier program started; kill it if it has not ended in time."""
    for attempt in (sign, signal.SIGKILL):
        if not identity.alive():
            return
        try:
            os.kill(identity.pid, attempt)
        except ProcessLookupError:
            return
        if _wait_gone(identity, timeout_s):
            return
    message = f"process {identity.pid} does not end, even after SIGKILL"
    raise StackError(message)


def _wait_gone(identity: Identity, timeout_s: float) -> bool:
    """Wait for the end of a process that is not our child; say whether it came in time."""
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(identity.pid)
        except OSError:
            return not identity.alive()
        try:
            ended, _, _ = select.select([handle], [], [], timeout_s)
        finally:
            os.close(handle)
        return bool(ended) or not identity.alive()
    deadline = time.monotonic() + timeout_s
    while identity.alive() and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    return not identity.alive()
