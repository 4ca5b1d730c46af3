"""An author's folder, as tests of loading and of revisions need it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.authors_folder import stand_in

APP = """
from runfold import Agent, App, Recovery, ToolContext, tool
from {name}_helper import GREETING

@tool(recovery=Recovery.RERUN)
async def read(ctx: ToolContext[None], title: str) -> str:
    return GREETING + title

app = App([Agent("one", model="test", instructions="", tools=[read])])
number = 3
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out an author's folder and stand in it; its modules are forgotten afterwards."""
    stand_in(tmp_path, monkeypatch, "loading_")
    (tmp_path / "loading_app.py").write_text(APP.format(name="loading_app"))
    (tmp_path / "loading_app_helper.py").write_text("GREETING = 'hello '\n")
    (tmp_path / "loading_broken.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "loading_script.py").write_text("import sys\n\nsys.exit(0)\n")
    (tmp_path / "loading_lazy.py").write_text("import sys\n\ndef __getattr__(name):\n    sys.exit()\n")
    sys.dont_write_bytecode = True
    return tmp_path
