"""What `make stack-status` says, and when it fails."""

import os
from pathlib import Path

import pytest

from devstack import __main__ as command
from devstack.ports import free_ports
from devstack.processes import Identity
from devstack.record import Record


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which nothing was started."""
    monkeypatch.setattr(command, "_BASE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_that_nothing_is_up_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure would look like a defect of the Makefile."""
    assert command.status() == 0
    assert capsys.readouterr().out == "devstack: nothing is up\n"


def test_a_server_that_died_is_a_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named; the others are told beside it."""
    (folder / "dev").mkdir()
    alive = Identity.of(os.getpid())
    record = Record(folder / "dev", None, {"kafka": alive})
    record.save()
    assert command.status() == 0
    record.processes["postgres"] = Identity(alive.pid, "another time")
    record.save()
    assert command.status() == 1
    assert f"postgres: dead, pid {alive.pid}\n" in capsys.readouterr().out


def test_no_port_is_given_twice() -> None:
    """Another server of the same stack binds its own seconds later."""
    given = [port for _ in range(100) for port in free_ports(5)]
    assert len(set(given)) == len(given)
