"""A server that is a local process of ours: what Kafka, Postgres and S3 have in common."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from devstack.processes import Identity, ServerProcess
from devstack.server import ServiceName

_READY_S: Final = 60.0
_STOP_S: Final = 30.0


class LocalServer(ABC):
    """Start, stop and kill of one process; a subclass says what to run and how to ask it whether it is ready.

    `folder` holds data and log. `started` is told of every new process as soon as it exists, so that the stack can
    write it down before anything goes wrong.
    """

    name: ClassVar[ServiceName]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    origin = "local"
    controllable = True

    def __init__(self, folder: Path, started: Callable[[ServiceName, Identity], None]) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._started = started
        self._process: ServerProcess | None = None

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder what the server expects; called before every start."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that runs in the foreground until it is signalled."""

    @abstractmethod
    def ready(self) -> bool:
        """Ask once whether clients are served."""

    def process_environment(self) -> dict[str, str]:
        """Return the environment of the process: the caller's, with HOME below the folder for files left there."""
        return {**os.environ, "HOME": str(self.folder)}

    def start(self) -> None:
        """Start it and return when it serves clients."""
        if self._process is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self._process = ServerProcess(self.name, self.command(), self.log, self.process_environment())
        self._started(self.name, self._process.identity)
        try:
            self._process.wait_ready(self.ready, _READY_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut it down in order."""
        if self._process is not None:
            self._process.stop(self.stop_signal, _STOP_S)
            self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None
