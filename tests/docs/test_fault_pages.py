"""docs/simulation.md and docs/chaos.md name the faults and checkers that there are; their code runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from runfold.testing.simulation.faults import ALL_FAULTS
from tests.chaos.schedule import ALL_GROUPS
from tests.crowd import checkers
from tests.simulation.test_author import agent

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIMULATION = (DOCS / "simulation.md").read_text(encoding="utf-8")
CHAOS = (DOCS / "chaos.md").read_text(encoding="utf-8")


def _first_column(table: str) -> list[str]:
    """The words in code of the first column of a table of two."""
    return [word for row in re.findall(r"^\| (`[^|]*) \|[^|]+\|$", table, flags=re.MULTILINE) for word in _code(row)]


def _code(text: str) -> list[str]:
    return re.findall(r"`([a-z_-]+)`", text)


def test_the_faults_of_the_simulation_are_those_of_its_table() -> None:
    """None is left out, and none is promised that does not exist."""
    assert sorted(_first_column(SIMULATION)) == sorted(ALL_FAULTS)


def test_the_faults_of_the_chaos_are_those_of_its_table() -> None:
    """The same, by group."""
    assert sorted(_first_column(CHAOS)) == sorted(ALL_GROUPS)


def test_the_checkers_of_the_chaos_exist() -> None:
    """Each name of the list is that of a checker that ``judge`` runs."""
    section = CHAOS.split("## What is checked\n")[1].split("\n**")[0]
    named = [name for name in _code(section) if "_" in name]
    known = {checker.__name__ for checker in (*checkers.CHECKERS, *checkers.SHARED)}
    assert len(named) >= 10
    # ``judge`` tells a question that a sleeper sent on waking apart by itself.
    judged = {"recorded_completions_are_never_asked_for_again"}
    # Of the services, and of the whole: ``tests/chaos/chaos.py`` and ``fleet.py``.
    services = {"every_service_ends_cleanly", "no_service_ends_by_itself"}
    assert set(named) - judged - services <= known


def test_the_code_of_the_page_about_the_simulation_runs() -> None:
    """With the shop of tests/simulation/test_author.py for the reader's own app."""
    [source] = re.findall(r"```python\n(.*?)```", SIMULATION, flags=re.DOTALL)
    names: dict[str, Any] = {"make_app": agent}
    exec(compile(source, "docs/simulation.md", "exec"), names)  # noqa: S102 - our own page
    assert names["outcome"].ending.started == ["order-1"]
