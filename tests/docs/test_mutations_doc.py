"""docs/mutations.md says what the code does: its table is the catalogue's, all of it caught."""

from __future__ import annotations

from pathlib import Path

from tests.mutations.catalogue import MUTATIONS, covered_table, table

_DOC = Path(__file__).resolve().parents[2] / "docs" / "mutations.md"


def test_the_table_is_what_the_catalogue_says() -> None:
    """Row for row; that each is caught is what tests/mutations shows. Made by ``python -m tests.mutations``."""
    assert table({mutation.name: True for mutation in MUTATIONS}) in _DOC.read_text(encoding="utf-8")


def test_the_rules_that_others_cover_are_those_of_the_catalogue() -> None:
    """Row for row, too."""
    assert covered_table() in _DOC.read_text(encoding="utf-8")
