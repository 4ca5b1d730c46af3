"""The README's quickstart, typed into a shell as it stands there."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from demo.installation import ROOT, Installation
from demo.processes import BIN
from devstack import Stack
from tests.acceptance.installing import SHORTEST_SESSION

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

_SERVERS = ("make setup", "make stack-up", "make stack-down")
"""What this test's own environment stands for."""
_BETWEEN = {
    # A person reads before the next line; here the state is awaited that they would read.
    "runfold start ": "until runfold waits first | grep -q first:3; do sleep 0.1; done",
    "runfold approve ": "runfold events first --follow > followed.txt",
}


def quickstart() -> list[str]:
    """Give the lines of the section's shell blocks, those about servers left out."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## Quickstart\n")[1].split("\n## ")[0]
    lines = "".join(re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)).splitlines()
    missing = [line for line in _SERVERS if line not in lines]
    assert not missing, f"the quickstart does not say {missing} any more: look at this test again"
    return [line for line in lines if line not in _SERVERS]


def script(lines: list[str]) -> str:
    """Put between the lines what waits for the state that a person would see."""
    typed = []
    for line in lines:
        typed.append(line)
        typed += [wait for command, wait in _BETWEEN.items() if line.startswith(command)]
    assert len(typed) == len(lines) + len(_BETWEEN)
    return "\n".join(typed)


def checkout(folder: Path, installation: Installation) -> None:
    """Lay out what the commands see of a checkout: the example, the environment, and the file of `make stack-up`."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.log", "__pycache__"))
    (folder / ".venv").symlink_to(BIN.parent)
    (folder / ".stack").mkdir()
    named = {name: value for name, value in installation.environment.items() if name.startswith(("RUNFOLD_", "AWS_"))}
    del named["RUNFOLD_APP"], named["RUNFOLD_REVISION"]  # the quickstart says the first and needs no second
    (folder / ".stack" / "env").write_text("".join(f"{name}={value}\n" for name, value in named.items()))


def test_the_quickstart_leads_to_a_run_that_ends_after_its_approval(stack: Stack, tmp_path: Path) -> None:
    """Every line succeeds, the services stop, and the run was completed by the approval."""
    installation = Installation.at(
        stack.environment(), tmp_path / "installation", app="app:app", partitions=2, kafka=SHORTEST_SESSION
    )
    checkout(tmp_path, installation)
    ours = ("RUNFOLD_", "PYTHONPATH", "AWS_")
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script(quickstart())],  # noqa: S607 - the reader's own shell
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            out, err = shell.communicate(timeout=150)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of a shell that succeeded
                os.killpg(shell.pid, signal.SIGKILL)
    try:
        logs = "".join(path.read_text() for path in sorted((tmp_path / "examples").rglob("*.log")))
        assert shell.returncode == 0, f"{out}\n{err}\n{logs[-6000:]}"
        followed = (tmp_path / "examples" / "tickets" / "followed.txt").read_text()
        assert followed.index("approved") < followed.index("run_completed")
        assert "I opened a ticket, and your refund is on its way." in out
    finally:
        installation.remove()
