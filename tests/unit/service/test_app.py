"""What a service says of an app that it cannot use: the operator mends it, so the message has to lead there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runfold import Agent, App
from runfold.cli.checks import findings
from runfold.service.app import app_of, revision_of
from runfold.service.errors import InstallationError
from runfold.service.settings import ClientSettings, load
from tests.unit.authors_folder import stand_in

BROKEN = {
    "import": ("import json\nimport not_installed_anywhere\n", "ModuleNotFoundError: No module named"),
    "name": ("\nfrom json import nothing_of_it\n", "ImportError: cannot import name"),
    "syntax": ("\nimport broken_app_parts.unreadable\n", "SyntaxError: "),
    "exit": ("import sys\nsys.exit(2)\n", "what it imports ends the process by sys.exit(2)"),
    "declaration": ("from runfold import tool\n@tool\ndef read() -> int: ...\n", "write @tool(recovery=...)"),
}
PARTS = "broken_app_parts"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an author's folder with an app whose helper is to be written; its modules are forgotten before."""
    stand_in(tmp_path, monkeypatch, "broken_app")
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / "unreadable.py").write_text("def :\n")
    (tmp_path / "broken_app.py").write_text(f"import json\n\nimport {PARTS}.helper\n")
    return tmp_path


@pytest.mark.parametrize("case", BROKEN)
async def test_what_cannot_be_imported_is_named_with_file_and_line(folder: Path, case: str) -> None:
    """Of the author's line that fails, not of Python's import machinery; a service refuses to start."""
    text, said = BROKEN[case]
    (folder / PARTS / "helper.py").write_text(text)
    with pytest.raises(InstallationError, match=rf"RUNFOLD_APP: .*{re.escape(said)}.*\({PARTS}/helper.py:2\)"):
        await app_of("broken_app:app")


async def test_check_names_file_and_line_of_whatever_the_apps_module_raises(folder: Path) -> None:
    """A variable that is not set, asked of the standard library, is the author's line."""
    (folder / PARTS / "helper.py").write_text("import os\nos.environ['NOT_SET_ANYWHERE']\n")
    given = {"postgres_dsn": "postgresql://127.0.0.1:1/x", "kafka_bootstrap": "127.0.0.1:1", "app": "broken_app:app"}
    settings = load(ClientSettings, {**given, "blob_url": folder.as_uri()})
    (found,) = [one async for one in findings(settings) if one.what == "app"]
    assert found.status == "wrong"
    assert found.detail == f"KeyError: 'NOT_SET_ANYWHERE' ({PARTS}/helper.py:2)"


async def test_an_app_whose_code_has_no_file_needs_a_revision() -> None:
    """One that nobody loaded by name, and that has no functions of its own."""
    app = App([Agent("one", model="test", instructions="")])
    with pytest.raises(InstallationError, match=r"RUNFOLD_APP: .* set RUNFOLD_REVISION"):
        await revision_of(app, None)
    assert await revision_of(app, "v7") == "v7"
