"""Servers in containers, through `docker compose` and the file compose.yaml beside this module."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devstack import probes
from devstack.errors import StackError
from devstack.ports import HOST, free_ports
from devstack.server import ACCESS_KEY, BUCKET, DATABASE, SECRET_KEY, ServiceName, s3_environment

_FILE: Final = Path(__file__).parent / "compose.yaml"
_READY_S: Final = 180.0
_ASK_S: Final = 10.0


def docker_answers() -> bool:
    """Say whether an engine answers and has compose; the client alone may be there without an engine."""
    if shutil.which("docker") is None:
        return False
    questions = (["docker", "info", "--format", "{{.ServerVersion}}"], ["docker", "compose", "version", "--short"])
    try:
        return all(_asks(question) for question in questions)
    except subprocess.TimeoutExpired:
        return False


def _asks(question: list[str]) -> bool:
    told = subprocess.run(question, capture_output=True, text=True, check=False, timeout=_ASK_S)
    return told.returncode == 0 and bool(told.stdout.strip())


class Compose:
    """One compose project: the containers of one stack, with their ports on loopback."""

    def __init__(self, project: str) -> None:
        self.project = project
        kafka, postgres, s3 = free_ports(3)
        self.ports: dict[ServiceName, int] = {"kafka": kafka, "postgres": postgres, "s3": s3}

    def run(self, *words: str) -> str:
        """Run `docker compose` for this project; raise StackError with what it said if it fails."""
        variables = {
            "KAFKA_PORT": str(self.ports["kafka"]),
            "POSTGRES_PORT": str(self.ports["postgres"]),
            "S3_PORT": str(self.ports["s3"]),
            "S3_ACCESS_KEY": ACCESS_KEY,
            "S3_SECRET_KEY": SECRET_KEY,
        }
        command = ["docker", "compose", "--project-name", self.project, "--file", str(_FILE), *words]
        told = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables)
        if told.returncode != 0:
            message = f"{' '.join(command)} ended with code {told.returncode}:\n{told.stdout}{told.stderr}"
            raise StackError(message)
        return told.stdout

    def down(self) -> None:
        """Remove the project's containers, network and volumes."""
        self.run("down", "--volumes", "--timeout", "10")


class DockerServer:
    """One service of a compose project."""

    origin = "docker"
    controllable = True

    def __init__(self, name: ServiceName, compose: Compose) -> None:
        self.name = name
        self._compose = compose
        self._address = f"{HOST}:{compose.ports[name]}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        match self.name:
            case "kafka":
                return {"RUNFOLD_KAFKA_BOOTSTRAP": self._address}
            case "postgres":
                return {"RUNFOLD_POSTGRES_DSN": f"postgresql://runfold:runfold@{self._address}/{DATABASE}"}
            case "s3":
                return s3_environment(f"http://{self._address}")

    def start(self) -> None:
        """Start the container and return when it serves clients."""
        self._compose.run("up", "--detach", "--no-deps", self.name)
        try:
            probes.wait_until(self._probe(), self.name, self._address, _READY_S)
        except StackError as error:
            message = f"{error}\n{self._compose.run('logs', '--tail', '25', self.name)}"
            raise StackError(message) from error

    def stop(self) -> None:
        """Stop the container, keep its data."""
        self._compose.run("stop", "--timeout", "30", self.name)

    def kill(self) -> None:
        """SIGKILL."""
        self._compose.run("kill", "--signal", "KILL", self.name)

    def _probe(self) -> Callable[[], bool]:
        found = self.environment()
        match self.name:
            case "kafka":
                return lambda: probes.kafka_answers(self._address)
            case "postgres":
                return lambda: probes.postgres_answers(found["RUNFOLD_POSTGRES_DSN"])
            case "s3":
                return lambda: probes.s3_answers(found, BUCKET)
