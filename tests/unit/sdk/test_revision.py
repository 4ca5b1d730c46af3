"""The revision of an app's code: which code counts, and what makes it another."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from runfold.sdk.errors import NoRevision
from runfold.sdk.loading import load_app
from runfold.sdk.revision import find_revision

PARTS = ("tool", "asked", "asking")


def forget() -> None:
    """Let the next import read the files again."""
    for name in ("loading_app", "loading_app_helper"):
        sys.modules.pop(name, None)


def test_the_revision_is_what_is_given_else_the_commit_else_a_hash(project: Path) -> None:
    """The hash follows every module of the app; the commit counts only where git tracks them."""
    load_app("loading_app:app")
    assert find_revision("loading_app:app", "v7") == "v7"
    first = find_revision("loading_app:app", None)
    assert first.startswith("sha256:")
    assert find_revision(["loading_app"], "") == first
    (project / "loading_app_helper.py").write_text("GREETING = 'good morning '\n")
    forget()
    load_app("loading_app:app")
    assert find_revision("loading_app:app", None) not in ("", first)
    git("init", "-q")
    assert find_revision("loading_app:app", None).startswith("sha256:")
    head = commit("loading_app.py", "loading_app_helper.py")
    assert find_revision("loading_app:app", None) == head


@pytest.mark.parametrize("changed", ["loading_app.py", "loading_app_helper.py"])
def test_what_is_not_committed_is_another_revision(project: Path, changed: str) -> None:
    """Each state of the sources has its own, and the commit alone stands for what it holds."""
    git("init", "-q")
    head = commit("loading_app.py", "loading_app_helper.py")
    load_app("loading_app:app")
    text = (project / changed).read_text()
    found = []
    for more in ("# one\n", "# two\n"):
        (project / changed).write_text(text + more)
        found.append(find_revision("loading_app:app", None))
    assert all(re.fullmatch(rf"{head}\+dirty\.[0-9a-f]{{12}}", one) for one in found)
    assert found[0] != found[1]
    git("add", changed)
    assert find_revision("loading_app:app", None) == found[1], "what is staged is not committed"
    (project / changed).write_text(text)
    git("add", changed)
    assert find_revision("loading_app:app", None) == head


def test_a_module_that_git_does_not_know_makes_the_work_tree_dirty_unless_it_is_ignored(project: Path) -> None:
    """The commit says nothing of it; files that are no code of the app do not count."""
    git("init", "-q")
    head = commit("loading_app.py")
    (project / "notes[1].txt").write_text("no code")
    load_app("loading_app:app")
    assert find_revision("loading_app:app", None).startswith(f"{head}+dirty.")
    (project / ".gitignore").write_text("loading_app_helper.py\n")
    assert find_revision("loading_app:app", None) == head


@pytest.mark.parametrize("file", ["_ops.py", 5], ids=["torch.ops", "a mock"])
@pytest.mark.parametrize("is_dirty", [False, True])
def test_a_strange_module_does_not_stop_a_service(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: object, *, is_dirty: bool
) -> None:
    """Torch has a module whose file is nowhere; a mock's is no text."""
    git("init", "-q")
    head = commit("loading_app.py", "loading_app_helper.py")
    load_app("loading_app:app")
    strange = ModuleType("strange_ops")
    strange.__file__ = file  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "strange_ops", strange)
    if is_dirty:
        (project / "loading_app.py").write_text((project / "loading_app.py").read_text() + "# changed\n")
    assert find_revision("loading_app:app", None).startswith(f"{head}+dirty." if is_dirty else head)


def test_a_lookup_from_an_installed_package_does_not_take_the_commit_away(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whatever is loaded from there would count, and a late import would make another revision."""
    installed = project / "site-packages"
    installed.mkdir()
    (installed / "loading_installed.py").write_text("def find(): ...\n")
    (project / ".gitignore").write_text("site-packages\n")
    git("init", "-q")
    head = commit("loading_app.py", "loading_app_helper.py")
    load_app("loading_app:app")
    monkeypatch.syspath_prepend(str(installed))
    import_module("loading_installed")
    assert find_revision(("loading_app", "loading_installed"), None) == head
    assert find_revision(("loading_installed",), None).startswith("sha256:")


def git(*arguments: str) -> str:
    """Run git where the test stands."""
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(*files: str) -> str:
    """Commit files; give the commit."""
    git("add", *files)
    git("commit", "-q", "-m", "x")
    return git("rev-parse", "HEAD")


def write_split_app(project: Path) -> None:
    """Write an app of four modules: one makes it, and tool, lookup and approval function come from one each."""
    (project / "loading_app.py").write_text(
        "from runfold import Agent, App\n"
        "from loading_tool.parts import pay\n"
        "from loading_asked.parts import find\n"
        "from loading_asking.parts import ask\n"
        "pay.lookup(find)\n"
        "pay.approval(ask)\n"
        "app = App([Agent('one', model='test', instructions='', tools=[pay])])\n"
    )
    texts = {
        "loading_tool": "from runfold import Recovery, tool\n\n@tool(recovery=Recovery.LOOKUP)\n"
        "async def pay() -> int:\n",
        "loading_asked": "async def find() -> int:\n",
        "loading_asking": "async def ask() -> None:\n",
    }
    for package, text in texts.items():
        (project / package).mkdir()
        (project / package / "__init__.py").write_text("")
        (project / package / "parts.py").write_text(text + "    return 1\n")


@pytest.mark.parametrize("changed", ["loading_app.py", *(f"loading_{part}/parts.py" for part in PARTS)])
def test_the_hash_covers_the_apps_own_module_its_lookups_and_its_approval_functions(
    project: Path, changed: str
) -> None:
    """Wherever they come from: the module that RUNFOLD_APP names need have no function at all."""
    write_split_app(project)
    app = load_app("loading_app:app")
    assert app.modules == ("loading_app", "loading_asked.parts", "loading_asking.parts", "loading_tool.parts")
    first = find_revision(app.modules, None)
    with (project / changed).open("a") as file:
        file.write("# changed\n")
    assert find_revision(app.modules, None) != first


def test_an_app_without_functions_has_the_revision_of_its_module(project: Path) -> None:
    """It was the hash of nothing, the same for every such app."""
    text = "from runfold import Agent, App\napp = App([Agent('one', model='test', instructions='')])\n"
    (project / "loading_app.py").write_text(text)
    app = load_app("loading_app:app")
    assert app.modules == ("loading_app",)
    first = find_revision(app.modules, None)
    assert first != f"sha256:{hashlib.sha256().hexdigest()}"
    (project / "loading_app.py").write_text(text + "# changed\n")
    assert find_revision(app.modules, None) != first


@pytest.mark.parametrize("modules", [[], ["not_loaded_at_all"], ["sys"]])
def test_code_without_a_file_has_no_revision(modules: list[str]) -> None:
    """A hash of nothing would let any code go on with any run."""
    with pytest.raises(NoRevision, match="set RUNFOLD_REVISION"):
        find_revision(modules, None)
    assert find_revision(modules, "v7") == "v7"


def test_code_that_cannot_be_read_has_no_revision(project: Path) -> None:
    """Such as that of a module in an archive."""
    load_app("loading_app:app")
    (project / "loading_app.py").unlink()
    with pytest.raises(NoRevision, match="cannot be read"):
        find_revision("loading_app:app", None)
