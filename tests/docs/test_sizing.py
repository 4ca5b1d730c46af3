"""docs/sizing.md agrees with its own arithmetic."""

from bench.sizing import DEFAULT_RUNS, PAGE, constants, needs, table


def test_the_table_of_results_follows_from_the_constants() -> None:
    """Who changes a constant prints the table again: `python -m bench.sizing`."""
    text = PAGE.read_text(encoding="utf-8")
    known = constants(text)
    assert table([needs(runs, known) for runs in DEFAULT_RUNS]) in text
