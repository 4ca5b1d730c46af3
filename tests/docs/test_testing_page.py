"""docs/testing.md says what is true: its code passes as tests, its report is what the command prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from runfold.testing import Harness
from runfold.testing.harness.findings import TITLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def _run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_code_of_the_page_passes(tmp_path: Path) -> None:
    """Each block is a test file of its own, run with pytest's defaults."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    tests = sum(block.count("\ndef test_") for block in blocks)
    assert tests >= len(blocks)
    assert f"{tests} passed" in _run("-m", "pytest", "-q", cwd=tmp_path)


def test_the_report_of_the_page_is_what_its_command_prints() -> None:
    """Word for word, line numbers included."""
    (report,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert "`python examples/careless/app.py`" in PAGE
    assert _run(os.fspath(Path("examples") / "careless" / "app.py"), cwd=ROOT) == report


def test_every_kind_of_finding_and_every_method_is_explained() -> None:
    """The tables leave nothing out."""
    kinds = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert {*kinds, "person"} >= set(TITLES)
    methods = {name for name in vars(Harness) if not name.startswith("_")}
    assert {name for name in methods if f"`{name}" not in PAGE} == set()
