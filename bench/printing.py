"""What the measurements say: a JSON object a line on stdout; progress and, at the end, a table on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Figures = Mapping[str, Any]


def progress(text: str) -> None:
    """Say what is being done."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def show(figures: Iterable[Figures]) -> list[Figures]:
    """Print each as it comes, then all as a table, sideways: a row for each figure; gives them."""
    shown = []
    for each in figures:
        sys.stdout.write(json.dumps(each) + "\n")
        sys.stdout.flush()
        shown.append(each)
    tabulate(shown)
    return shown


def tabulate(figures: Sequence[Figures]) -> None:
    """Print the table on stderr, so that stdout holds nothing but JSON."""
    table = Table("", show_header=False)
    for name in dict.fromkeys(name for each in figures for name in each):
        table.add_row(name, *(_text(each.get(name)) for each in figures))
    Console(stderr=True).print(table)


def rounded(value: float) -> float:
    """Give three significant digits, or all digits before the point."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.3g}")  # noqa: PLR2004 - from four digits on


def p99(ordered: Sequence[float]) -> float:
    """Give the value that 99 of 100 do not exceed, of values in ascending order."""
    return ordered[int(len(ordered) * 0.99)]


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
