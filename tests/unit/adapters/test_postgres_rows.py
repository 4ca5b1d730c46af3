"""Rows as the text that a statement reads its columns from."""

import json

import pytest

from runfold.adapters.postgres.rows import as_json


def test_bytes_are_written_as_postgres_reads_them() -> None:
    """A bytea out of a text: a backslash, an x, and hexadecimal digits."""
    assert json.loads(as_json([{"output": b"\x00\xff", "size": None}])) == [{"output": "\\x00ff", "size": None}]


def test_a_nul_is_replaced_wherever_it_stands() -> None:
    """Postgres holds none in a text; a tool's error may contain one, and so may a key of what is nested."""
    rows = [{"error": "a\0b", "usage": {"in\0": 1}, "list": ["\0"]}]
    assert json.loads(as_json(rows)) == [{"error": "a\ufffdb", "usage": {"in\ufffd": 1}, "list": ["\ufffd"]}]


def test_text_that_only_looks_like_a_nul_stays() -> None:
    """A backslash and what follows it are a person's own."""
    assert json.loads(as_json([{"error": "\\u0000"}])) == [{"error": "\\u0000"}]


def test_what_no_column_holds_is_refused() -> None:
    """A defect is told here, not by the database."""
    with pytest.raises(TypeError) as refused:
        as_json([{"error": {1}}])
    assert "no column holds a set" in str(refused.value.__cause__)
