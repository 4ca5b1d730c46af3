"""The services as child processes of the demo: started by their console commands, logs in files, stopped by pid."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self

from demo.errors import DemoError
from devstack.ports import free_ports

Command = Literal["runfold-step-executor", "runfold-snapshot-compactor", "runfold-reconciler"]
BIN: Final = Path(sys.executable).parent
_TAIL_LINES: Final = 15
_STOP_S: Final = 45.0
_KILLED_S: Final = 10.0
_READY_S: Final = 60.0
_TICK_S: Final = 0.1
_QUESTION_S: Final = 2.0
_OK: Final = 200


@dataclass(slots=True)
class Service:
    """One running service."""

    name: str
    child: subprocess.Popen[bytes]
    log: Path
    port: int
    is_expected_to_run: bool = field(default=True)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    def tail(self) -> str:
        """Give the last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"--- {self.name}, the end of {self.log}", *lines[-_TAIL_LINES:]])


class Services:
    """Starts and ends services; as a context manager it leaves none behind."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._all: list[Service] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.tails())
        for service in self.running():
            service.is_expected_to_run = False
            service.child.kill()
            service.child.wait(_KILLED_S)

    def running(self) -> Iterator[Service]:
        """Give those that have not ended."""
        return (service for service in self._all if service.child.poll() is None)

    def start(
        self,
        command: Command,
        name: str,
        extra: Mapping[str, str] | None = None,
        module: str | None = None,
    ) -> Service:
        """Start a service by its console command, or a variant of it by its module; returns at once."""
        log = self._folder / f"{name}.log"
        port = free_ports(1)[0]
        environment = {**self._environment, "RUNFOLD_METRICS_PORT": str(port), **(extra or {})}
        with log.open("ab") as output:
            # A session of its own: Ctrl-C in the terminal is for the demo, which then ends the service itself.
            child = subprocess.Popen(
                [str(BIN / command)] if module is None else [sys.executable, "-m", module],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        service = Service(name, child, log, port)
        self._all.append(service)
        return service

    def await_ready(self, *services: Service) -> None:
        """Return when /readyz of each says so.

        Raises:
            DemoError: One ended, or is not ready in time.
        """
        deadline = time.monotonic() + _READY_S
        for service in services:
            while not _is_ready(service.port):
                self.check()
                if time.monotonic() > deadline:
                    raise DemoError(f"{service.name} should be ready within {_READY_S:.0f} s and is not")
                # Nothing tells when a process begins to listen: ask again, or hear at once that it ended.
                _wait_ended(service, _TICK_S)

    def check(self) -> None:
        """Look for services that ended by themselves.

        Raises:
            DemoError: There is one.
        """
        for service in self._all:
            code = service.child.poll()
            if service.is_expected_to_run and code is not None:
                raise DemoError(f"{service.name} should be running and has ended with code {code}")

    def stop(self, service: Service) -> float:
        """SIGTERM, and wait for the clean end; gives the seconds that it took.

        Raises:
            DemoError: It does not end, or not with code 0.
        """
        service.is_expected_to_run = False
        began = time.monotonic()
        service.child.send_signal(signal.SIGTERM)
        if not _wait_ended(service, _STOP_S):
            raise DemoError(
                f"{service.name} should end within {_STOP_S:.0f} s after SIGTERM and does not\n{service.tail()}"
            )
        if service.child.returncode != 0:
            raise DemoError(f"{service.name} should end with code 0 after SIGTERM, not {service.child.returncode}")
        return time.monotonic() - began

    def kill(self, service: Service) -> None:
        """SIGKILL, and wait until it is gone."""
        service.is_expected_to_run = False
        service.child.kill()
        service.child.wait(_KILLED_S)

    def by_pid(self, pid: int) -> Service:
        """Give the service that runs as a process.

        Raises:
            DemoError: None does.
        """
        for service in self.running():
            if service.pid == pid:
                return service
        raise DemoError(f"process {pid} should be one of the services: {[each.name for each in self.running()]}")

    def tails(self) -> str:
        """Give the last lines of all logs."""
        return "\n".join(service.tail() for service in self._all)


def _wait_ended(service: Service, timeout_s: float) -> bool:
    try:
        service.child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=_QUESTION_S) as answer:
            return bool(answer.status == _OK)
    except (urllib.error.URLError, OSError):
        return False
