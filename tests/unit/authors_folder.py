"""Standing in an author's folder, as somebody who starts a service there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Go there for the time of a test; modules of this prefix, which an earlier one has loaded, are forgotten."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        monkeypatch.delitem(sys.modules, name)
