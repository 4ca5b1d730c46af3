"""An installation of its own for each test, in this process' environment, and its services as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runfold.cli import main

FOLDER = Path(__file__).parent
PARTITIONS = 3


@pytest.fixture
def installation(
    monkeypatch: pytest.MonkeyPatch,
    kafka_bootstrap: str,
    postgres_dsn: str,
    postgres_schema: str,
    s3_env: dict[str, str],
    topic_prefix: str,
) -> dict[str, str]:
    """Set the environment of an installation that is not set up yet."""
    for name in [name for name in os.environ if name.startswith("RUNFOLD_")]:
        monkeypatch.delenv(name)
    named = {
        **s3_env,
        "RUNFOLD_KAFKA_BOOTSTRAP": kafka_bootstrap,
        "RUNFOLD_POSTGRES_DSN": postgres_dsn,
        "RUNFOLD_POSTGRES_SCHEMA": postgres_schema,
        "RUNFOLD_TOPIC_PREFIX": topic_prefix,
        "RUNFOLD_PARTITIONS": str(PARTITIONS),
        "RUNFOLD_APP": "agents:app",
    }
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(FOLDER))
    return named


class Commands:
    """The command line in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.err = ""

    def __call__(self, *line: str, code: int = 0) -> str:
        """Run a command; gives its stdout, keeps its stderr in ``err``."""
        found = main(line)
        out, self.err = self._capture.readouterr()
        assert found == code, f"{line} ended with {found}: {self.err}"
        return out

    def json(self, *line: str) -> Any:
        """Run a reading command."""
        return json.loads(self(*line, "--json"))


@pytest.fixture
def runfold(installation: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return the command line of an installation that is not set up yet."""
    return Commands(capsys)


Services = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def service(installation: dict[str, str], tmp_path: Path) -> Iterator[Services]:
    """Start services of the installation; they are stopped, and must stop cleanly, with the test."""
    running: list[tuple[subprocess.Popen[str], Path]] = []

    def start(name: str, *options: str) -> subprocess.Popen[str]:
        log = tmp_path / f"{name}-{uuid.uuid4().hex[:6]}.log"
        with log.open("w") as into:
            process = subprocess.Popen(
                [sys.executable, "-m", name, *options], stderr=into, cwd=FOLDER, env=os.environ, text=True
            )
        running.append((process, log))
        return process

    yield start
    for process, _ in running:
        process.send_signal(signal.SIGTERM)
    for process, log in running:
        try:
            code = process.wait(45)
        finally:
            process.kill()
        assert code == 0, f"{log.name}: {log.read_text()[-4000:]}"
