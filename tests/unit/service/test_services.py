"""The three commands: what they need, what they refuse, and what they do without."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

APPS = ("runfold_step_executor", "runfold_reconciler")
ALL = (*APPS, "runfold_snapshot_compactor")
AWAY = {
    **{name: value for name, value in os.environ.items() if not name.startswith("RUNFOLD_")},
    "RUNFOLD_KAFKA_BOOTSTRAP": "127.0.0.1:1",
    "RUNFOLD_POSTGRES_DSN": "postgresql://x:hunter2@127.0.0.1:1/x",
    "RUNFOLD_BLOB_URL": "file:///tmp/x",
}


def run(name: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", name, *options],
        capture_output=True,
        text=True,
        env={**AWAY, **variables},
        timeout=60,
        check=False,
    )


def imported(name: str, *prefixes: str) -> str:
    """Give which modules with these prefixes a service imports, before it has an app."""
    code = f"import sys, {name}.__main__; print(*(name for name in sys.modules if name.startswith({prefixes})))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_compactor_does_without_authors_code() -> None:
    assert imported("runfold_snapshot_compactor", "runfold.sdk") == ""


@pytest.mark.parametrize("name", ALL)
def test_a_service_imports_its_own_engine_alone_and_pydantic_ai_not_before_its_app(name: str) -> None:
    """The import of pydantic-ai, half of a start, goes on beside the connecting to the servers."""
    own = {"runfold_step_executor": "executor", "runfold_reconciler": "reconciler"}.get(name, "compactor")
    others = {"executor", "reconciler", "compactor"} - {own}
    assert imported(name, "pydantic_ai", *(f"runfold.runtime.{other}" for other in others)) == ""


def test_an_app_is_refused_at_once_although_kafka_does_not_answer() -> None:
    """What is waited for beside the app's import, ten seconds long, is not waited for any longer."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        bootstrap = f"127.0.0.1:{mute.getsockname()[1]}"
        done = run("runfold_step_executor", "--app", "nowhere_at_all:app", RUNFOLD_KAFKA_BOOTSTRAP=bootstrap)
        lasted = time.monotonic() - began
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert (done.returncode, events) == (2, ["starting", "start_refused"])
    assert lasted < 8


@pytest.mark.parametrize("name", APPS)
def test_a_service_is_not_ready_before_its_app_is_there(name: str) -> None:
    """All servers may answer long before: a deployment would take the old ones away."""
    code = f"from {name}.__main__ import SERVICE; print(*SERVICE.needs)"
    needs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "app" in needs


@pytest.mark.parametrize("name", APPS)
def test_a_stop_ends_although_an_app_s_import_hangs(name: str, tmp_path: Path) -> None:
    """Nobody can break an import off: no end of the process waits for it."""
    stop = "threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()"
    (tmp_path / "hanging.py").write_text(f"import os, signal, threading, time\n{stop}\ntime.sleep(60)\n")
    done = run(name, "--app", "hanging:app", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0


@pytest.mark.parametrize("raised", ["asyncio.CancelledError", "concurrent.futures.CancelledError", "StopIteration"])
def test_what_an_import_raises_is_not_taken_for_the_loop_s_own(raised: str, tmp_path: Path) -> None:
    """Nor waited behind while Kafka is away."""
    (tmp_path / "raising.py").write_text(f"import asyncio, concurrent.futures\nraise {raised}('so')\n")
    done = run("runfold_step_executor", "--app", "raising:app", PYTHONPATH=str(tmp_path))
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, said[-1]["event"]) == (1, "failed")
    assert f"{raised.rpartition('.')[2]}: so" in done.stderr


@pytest.mark.parametrize("name", APPS)
def test_a_service_that_runs_an_app_needs_one(name: str) -> None:
    done = run(name)
    assert done.returncode == 2
    assert "RUNFOLD_APP is not set: give module:attribute of the runfold.App there or with --app" in done.stderr


@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize(
    ("app", "said"), [("nowhere_at_all:app", "nowhere_at_all"), ("json:dumps", "not a runfold.App")]
)
def test_an_app_that_is_none_is_refused(name: str, app: str, said: str) -> None:
    done = run(name, "--app", app)
    assert done.returncode == 2
    line = next(line for line in map(json.loads, done.stderr.splitlines()) if line["level"] == "error")
    assert line["error"].startswith("RUNFOLD_APP: ")
    assert said in line["error"]


@pytest.mark.parametrize("name", ALL)
def test_a_variable_of_no_service_is_refused(name: str) -> None:
    done = run(name, RUNFOLD_INLINE_LIMTI="3", RUNFOLD_APP="a:b")
    assert done.returncode == 2
    assert "did you mean RUNFOLD_INLINE_LIMIT?" in done.stderr


def test_kafka_away_at_the_start_is_waited_for_and_sigterm_ends_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "runfold_snapshot_compactor"], stderr=subprocess.PIPE, text=True, env=AWAY
    ) as process:
        assert process.stderr is not None
        said = next(line for line in map(json.loads, process.stderr) if "dependency" in line)
        assert (said["dependency"], said["variable"]) == ("kafka", "RUNFOLD_KAFKA_BOOTSTRAP")
        assert "127.0.0.1:1: Connection refused" in said["error"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
