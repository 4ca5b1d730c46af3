"""The docs say what is true: links and paths exist, commands and options exist, code blocks parse, words are kept."""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from runfold import App
from runfold.cli.app import app
from runfold.codec.input_models import MODELS
from runfold.service.metrics import Name
from runfold.service.variables import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
DOCS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *ROOT.glob("deploy/*.md"), *ROOT.glob("services/*/*.md")]
COMMANDS = typer.main.get_command(app)


def _anchors(doc: Path) -> set[str]:
    """Name the headings of a page as GitHub does: lower case, punctuation gone, hyphens for spaces."""
    text = re.sub(r"```.*?```", "", doc.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(doc: Path) -> None:
    """Files exist, and so do the headings that anchors name."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", doc.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = doc.parent / target if target else doc
        assert found.exists(), f"{doc.name} links to {target}"
        if anchor:
            assert anchor in _anchors(found), f"{doc.name} links to {target}#{anchor}"


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_runfold_command_in_a_shell_block_exists(doc: Path) -> None:
    """`runfold X` names a command, and each of its options is one of that command's."""
    for block in _blocks(doc.read_text(encoding="utf-8"), "sh"):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if not words or words[0] != "runfold" or len(words) < 2:
                continue
            command = COMMANDS.commands.get(words[1])  # type: ignore[attr-defined]  # typer types a group as a command
            assert command is not None, line
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words[2:] if word.startswith("--")} <= known, line


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_make_target_exists(doc: Path) -> None:
    """`make X` in a shell block is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for block in _blocks(doc.read_text(encoding="utf-8"), "sh"):
        for target in re.findall(r"^make ([a-z-]+)", block, flags=re.MULTILINE):
            assert target in targets


def test_the_readme_python_parses_and_its_json_are_valid_inputs() -> None:
    """What a reader copies is at least well-formed; each JSON line is of a type that its model accepts."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in _blocks(readme, "python"):
        ast.parse(block)
    lines = [line for block in _blocks(readme, "json") for line in block.splitlines() if line]
    assert len(lines) >= 5
    for line in lines:
        document = json.loads(line)
        MODELS[document["type"]].model_validate(document)


def test_the_readme_python_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks one after the other: the app is one, and its test passes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "readme"}
    monkeypatch.setitem(sys.modules, "readme", types.ModuleType("readme"))
    for block in _blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python"):
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102 - our own text
    assert isinstance(names["app"], App)
    names["test_a_report_survives_every_crash"]()


def test_the_readme_lists_exactly_the_variables_that_exist() -> None:
    """No variable is missing from the table, none is made up."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(RUNFOLD_[A-Z_]+)`", readme, flags=re.MULTILINE)) == {v.name for v in VARIABLES}


def test_every_metric_that_the_docs_name_exists() -> None:
    """A counter has ``_total`` behind its name."""
    known = {str(name) for name in Name}
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    named = re.findall(r"`(runfold_(?:executor|compactor|reconciler)_[a-z_]+)`", text)
    assert named
    assert {name.removesuffix("_total") for name in named} <= known


def _refusals(path: Path) -> Iterator[str]:
    """Find the reasons for which a module refuses inputs."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case (
                ast.Call(func=ast.Name(id="BadInput" | "dead"), args=[ast.Constant(value=str(reason)), *_])
                | ast.Call(func=ast.Attribute(attr="BadInput" | "dead"), args=[ast.Constant(value=str(reason)), *_])
                | ast.Assign(targets=[ast.Name(id="why")], value=ast.Tuple(elts=[ast.Constant(value=str(reason)), *_]))
            ):
                yield reason
            case _:
                continue


def test_every_reason_for_which_an_input_is_refused_is_explained() -> None:
    """The code, the table for operators and the schema for programs know the same reasons."""
    library = ROOT / "libs" / "runfold" / "src" / "runfold"
    used = {
        reason
        for path in [*(library / "codec").glob("*.py"), *(library / "runtime").glob("**/*.py")]
        for reason in _refusals(path)
    }
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.split("## Inputs that were refused\n")[1].split("\n## ")[0]
    explained = re.findall(r"^\| `([a-z_]+)` \|", section, flags=re.MULTILINE)
    schemas = yaml.safe_load((ROOT / "schemas" / "asyncapi.yaml").read_text(encoding="utf-8"))["components"]["schemas"]
    assert len(explained) == len(set(explained))
    assert set(explained) == used
    assert set(schemas["dead_headers"]["properties"]["reason"]["enum"]) == used


def _holding(line: str) -> list[tuple[str, str]]:
    """Give the tests that a row of a table names, by file and function."""
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)


@pytest.mark.parametrize("page", ["interleavings.md", "cases.md"])
def test_every_row_is_held_by_tests_that_exist(page: str) -> None:
    """Each row of a table names at least one test; each test named anywhere on the page exists."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [
        row for body in re.findall(r"^\|---.*\n((?:\|.*\n)+)", text, flags=re.MULTILINE) for row in body.splitlines()
    ]
    assert len(rows) > 10
    for row in rows:
        assert _holding(row), row
    for path, name in _holding(text):
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_the_interleavings_are_numbered_without_a_gap() -> None:
    """Tests name them by these numbers."""
    text = (ROOT / "docs" / "interleavings.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_test_of_a_case_is_named_on_its_page() -> None:
    """What stands in tests/cases holds a row of docs/cases.md."""
    named = set(_holding((ROOT / "docs" / "cases.md").read_text(encoding="utf-8")))
    for path in (ROOT / "tests" / "cases").glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert (str(path.relative_to(ROOT)), name) in named, f"{path.name}::{name}"


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    """One word, one meaning; sorted, so that it can be found."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*([^*]+)\*\*", text, flags=re.MULTILINE)
    assert words == sorted(set(words), key=str.casefold)


def test_architecture_names_only_files_that_exist() -> None:
    """Paths in backquotes that look like files of the library are there."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    library = ROOT / "libs" / "runfold" / "src" / "runfold"
    for path in re.findall(r"`((?:core|runtime|codec|ports)/[\w/]+\.py)`", text):
        assert (library / path).exists(), path
