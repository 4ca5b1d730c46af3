"""``tools/python.sh``: which interpreter builds the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "python.sh"


def _choice(tmp_path: Path, *interpreters: tuple[str, str]) -> str:
    """Run the script with interpreters that answer its probe with a text; gives the chosen one's folder and name."""
    folders = []
    for index, (name, answer) in enumerate(interpreters):
        folder = tmp_path / f"bin{index}"
        folder.mkdir()
        fake = folder / name
        fake.write_text(f"#!/bin/sh\n{answer}\n")
        fake.chmod(0o755)
        folders.append(str(folder))
    path = os.pathsep.join([*folders, "/usr/bin", "/bin"])
    chosen = subprocess.run([str(SCRIPT)], env={"PATH": path}, capture_output=True, text=True, check=True).stdout
    return chosen.strip().removeprefix(f"{tmp_path}/")


def test_a_build_of_the_same_version_that_is_much_faster_is_taken(tmp_path: Path) -> None:
    """The default is slow, another one of its version is not."""
    assert _choice(tmp_path, ("python3", "echo 9.9 cpy-x 100"), ("python9.9", "echo 9.9 cpy-x 60")) == "bin1/python9.9"


def test_the_default_stays_where_the_other_is_hardly_faster_or_another_version(tmp_path: Path) -> None:
    """What is a little faster may be noise, and another version is another choice."""
    others = (("python9.9", "echo 9.9 cpy-x 90"), ("python3", "echo 9.8 cpy-y 10"))
    assert _choice(tmp_path, ("python3", "echo 9.9 cpy-x 100"), *others) == "python3"


def test_another_kind_of_python_is_none(tmp_path: Path) -> None:
    """The locked wheels are for one kind."""
    assert _choice(tmp_path, ("python3", "echo 9.9 cpy-x 100"), ("python9.9", "echo 9.9 pypy-x 5")) == "python3"


def test_one_that_reads_its_input_hides_no_other(tmp_path: Path) -> None:
    """A wrapper may."""
    others = (("python9.9", "cat; exit 1"), ("python9.9", "echo 9.9 cpy-x 60"))
    assert _choice(tmp_path, ("python3", "echo 9.9 cpy-x 100"), *others) == "bin2/python9.9"


def test_one_that_can_make_no_environment_is_passed_by(tmp_path: Path) -> None:
    """As Debian's without its package for environments."""
    assert _choice(tmp_path, ("python3", "echo 9.9 cpy-x 100"), ("python9.9", "exit 1")) == "python3"


def test_a_default_that_answers_nothing_stays(tmp_path: Path) -> None:
    """The default is printed, and what builds the environment with it says what is wrong."""
    assert _choice(tmp_path, ("python3", "exit 1"), ("python9.9", "echo 9.9 cpy-x 60")) == "python3"
