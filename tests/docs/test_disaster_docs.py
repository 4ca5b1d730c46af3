"""docs/disaster.md quotes what the code says, names commands that parse, and has a page for every case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from runfold.cli.app import app
from runfold.service.metrics import Name

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "libs" / "runfold" / "src" / "runfold"
PAGE = (ROOT / "docs" / "disaster.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app)


def _text(node: ast.AST) -> str | None:
    """Give a string of the code with … for what is put in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
        case _:
            return None


def _texts() -> Iterator[str]:
    for path in LIBRARY.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = _text(node)
            if text is not None:
                yield text


def _quotes() -> list[str]:
    """Find what the page says that one sees: the first column of the table of cases."""
    table = PAGE.split("## The cases\n")[1].split("\n## ")[0]
    return [
        quote for row in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE) for quote in re.findall("`(.*?)`", row)
    ]


def test_the_page_quotes_what_the_code_says() -> None:
    """Every line that one is told to look for is one that the code can write."""
    said = "\n".join(_texts())
    quotes = [quote for quote in _quotes() if quote != "verify"]
    assert len(quotes) >= 12
    for quote in quotes:
        assert quote in said, quote


def test_every_row_of_the_cases_leads_to_a_page() -> None:
    """Each case is followed by a heading of its own, and each heading has a command, or says that none is needed."""
    table = PAGE.split("## The cases\n")[1].split("\n## ")[0]
    targets = set(re.findall(r"\]\(#([a-z-]+)\)", table))
    sections = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): body
        for title, body in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    }
    assert len(targets) == 7
    for target in targets:
        assert "```sh\nrunfold" in sections[target] or "Mend the settings" in sections[target], target


@pytest.mark.parametrize("line", re.findall(r"^(runfold .+)$", PAGE, flags=re.MULTILINE))
def test_every_command_of_the_page_parses(line: str) -> None:
    """With its arguments and options, as typed."""
    words = [word.replace("TEXT", "text") for word in line.split()[1:]]
    command = COMMANDS.commands[words[0]]  # type: ignore[attr-defined]  # typer types a group as a command
    with command.make_context(words[0], words[1:], resilient_parsing=False) as context:
        assert context.command is command


def test_every_metric_that_the_page_names_exists() -> None:
    """A counter has ``_total`` behind its name."""
    named = re.findall(r"`(runfold_(?:executor|compactor|reconciler)_[a-z_]+)`", PAGE)
    assert named
    assert {name.removesuffix("_total") for name in named} <= {str(name) for name in Name}
