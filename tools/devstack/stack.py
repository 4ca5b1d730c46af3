"""A stack: up to three servers, each found in its own way, started together and stopped together."""

import contextlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devstack.docker import Compose, DockerServer, docker_answers
from devstack.errors import NoServersError, StackError
from devstack.given import GivenServer
from devstack.local_kafka import LocalKafka
from devstack.local_postgres import LocalPostgres
from devstack.local_s3 import LocalS3
from devstack.processes import Identity
from devstack.record import Record
from devstack.server import ADDRESS_VARIABLE, SERVICES, Mode, Server, ServiceName

FOLDER: Final = ".stack"
_PRIVATE: Final = "private"


class Stack:
    """The servers of one user (a test session, the demo, a developer), as a context manager that stops them."""

    def __init__(self, servers: dict[ServiceName, Server], record: Record, compose: Compose | None) -> None:
        self._servers = servers
        self._record = record
        self._compose = compose
        self._detached = False

    @classmethod
    def start(
        cls,
        root: Path,
        *,
        mode: Mode = "auto",
        services: Collection[ServiceName] = SERVICES,
        name: str | None = None,
    ) -> Self:
        """Find or start the servers, and return when all of them serve clients.

        `root` is the checkout; data goes below `root/.stack`, into a folder of this stack's own unless `name` gives
        one. Raises NoServersError if this machine cannot provide a server, StackError if one does not come up.
        """
        base = root.resolve() / FOLDER
        sweep(base)
        folder = _new_folder(base, name)
        record = Record(folder, owner=Identity.of(os.getpid()))
        record.save()
        try:
            servers, compose = _choose(base, record, mode, services)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stack = cls(servers, record, compose)
        try:
            stack._start_all()
        except BaseException:
            stack.close()
            raise
        return stack

    @property
    def kafka(self) -> Server:
        """The broker."""
        return self._server("kafka")

    @property
    def postgres(self) -> Server:
        """The database server."""
        return self._server("postgres")

    @property
    def s3(self) -> Server:
        """The object store."""
        return self._server("s3")

    @property
    def folder(self) -> Path:
        """The folder of this stack's data and logs."""
        return self._record.folder

    def origins(self) -> dict[ServiceName, str]:
        """Say of each server how it was found: `env`, `docker` or `local`."""
        return {name: server.origin for name, server in self._servers.items()}

    def environment(self) -> dict[str, str]:
        """Return the variables by which Runfold and boto3 find the servers."""
        return {key: value for server in self._servers.values() for key, value in server.environment().items()}

    def detach(self) -> None:
        """Let the servers outlive this program: closing does nothing from now on."""
        self._record.owner = None
        self._record.save()
        self._detached = True

    def close(self) -> None:
        """Stop what was started and remove its data."""
        if self._detached:
            return
        try:
            with ThreadPoolExecutor(len(SERVICES)) as pool:
                # A container goes with its project, below.
                local = [server for server in self._servers.values() if server.origin == "local"]
                for stopping in [pool.submit(server.stop) for server in local]:
                    stopping.result()
        finally:
            if self._compose is not None:
                self._compose.down()
        shutil.rmtree(self._record.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _server(self, name: ServiceName) -> Server:
        if name not in self._servers:
            message = f"{name} is not among the services of this stack: {', '.join(self._servers)}"
            raise StackError(message)
        return self._servers[name]

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(SERVICES)) as pool:
            starting = [pool.submit(server.start) for server in self._servers.values()]
        failed = [error for start in starting if (error := start.exception()) is not None]
        if failed:
            raise failed[0]
        self._record.environment = self.environment()
        self._record.save()


def _new_folder(base: Path, name: str | None) -> Path:
    if name is None:
        (base / _PRIVATE).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="", dir=base / _PRIVATE))
    folder = base / name
    folder.mkdir(parents=True)
    return folder


def _choose(
    base: Path, record: Record, mode: Mode, services: Collection[ServiceName]
) -> tuple[dict[ServiceName, Server], Compose | None]:
    """Find each service: an address in the environment, else a Docker engine, else a local process."""
    wanted = [name for name in SERVICES if name in services]
    given = {name for name in wanted if mode in {"auto", "env"} and os.environ.get(ADDRESS_VARIABLE[name])}
    if mode == "env" and len(given) < len(wanted):
        missing = ", ".join(ADDRESS_VARIABLE[name] for name in wanted if name not in given)
        message = f"mode env takes every address from the environment, which lacks {missing}"
        raise NoServersError(message)
    compose = None
    if len(given) < len(wanted) and (mode == "docker" or (mode == "auto" and docker_answers())):
        if not docker_answers():
            message = "no Docker engine answers (`docker info` and `docker compose version` must succeed)"
            raise NoServersError(message)
        # The folder's name is the stack's, the checkout's makes it unique on this machine.
        compose = Compose(f"runfold-{_short(base)}-{record.folder.name.lower()}")
        record.compose_project = compose.project
        record.save()
    servers: dict[ServiceName, Server] = {}
    for name in wanted:
        if name in given:
            servers[name] = GivenServer(name, os.environ)
        elif compose is not None:
            servers[name] = DockerServer(name, compose)
        else:
            servers[name] = _local(base, record, name)
    return servers, compose


def _local(base: Path, record: Record, name: ServiceName) -> Server:
    folder = record.folder / name
    match name:
        case "kafka":
            return LocalKafka(folder, record.started, base / "kafka-libs")
        case "postgres":
            return LocalPostgres(folder, record.started)
        case "s3":
            return LocalS3(folder, record.started)


def _short(base: Path) -> str:
    return f"{zlib.crc32(str(base).encode()):08x}"


def sweep(base: Path) -> None:
    """Stop what programs that were killed have left running below this checkout, and remove its data."""
    for folder in (base / _PRIVATE).glob("*"):
        record = Record.load(folder)
        if record is not None and record.abandoned():
            with contextlib.suppress(StackError):
                record.stop_all()
                shutil.rmtree(folder, ignore_errors=True)
