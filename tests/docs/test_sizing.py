"""docs/sizing.md agrees with its own arithmetic."""

import pytest

from bench.completions import completions_before, fitted, shapes
from bench.sizing import DEFAULT_RUNS, PAGE, a_step, constants, needs, table

_CHECKED = {"1 of 20": 2, "4 of 5": 5, "20 of 1": 21}
"""The page's shapes of runs of 20 calls -> how many completions one has, the last included."""


def test_the_table_of_results_follows_from_the_constants() -> None:
    """Who changes a constant prints the table again: `python -m bench.sizing`."""
    text = PAGE.read_text(encoding="utf-8")
    known = constants(text)
    assert table([needs(runs, known) for runs in DEFAULT_RUNS]) in text


@pytest.mark.parametrize(("shape", "completions"), _CHECKED.items())
def test_what_is_checked_against_a_measurement_is_what_the_formulas_say(shape: str, completions: int) -> None:
    """Each row has, for every process, what was computed and what was found."""
    known = constants(PAGE.read_text(encoding="utf-8"))
    step = a_step(known | {"steps_a_run": 20, "completions_a_step": completions / 20})
    compactor_us = step.events / known["compactor_events_per_s"] * 1e6
    computed = [step.executor_us, compactor_us, step.kafka_us, step.postgres_us]
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {shape} |"))
    assert [cell.split(" / ")[0].strip() for cell in row.split("|")[2:-1]] == [f"{each:.0f}" for each in computed]


def test_the_cost_of_a_completion_is_found_again() -> None:
    """From runs whose costs follow from it exactly."""

    def cost(shape: tuple[int, int]) -> float:
        turns, calls = shape
        return 900 + 170 * turns * calls + 345 * (turns + 1) + 26 * completions_before(shape)

    assert fitted({shape: cost(shape) for calls in (20, 80) for shape in shapes(calls)}) == pytest.approx((345, 26))
