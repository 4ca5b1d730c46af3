"""Our own examples are tested with the harness, as their readers would do it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    """In its folder, with pytest's own defaults and none of our settings."""
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.fspath(settings), "--rootdir", ".", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT / "examples" / "tickets",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
