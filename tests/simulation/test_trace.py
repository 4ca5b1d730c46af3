"""What a person sees of a seed: the schedule, and a seed that spins or raises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import many
from tests.simulation.many import report_of
from tests.simulation.scenario import run_seed

ROOT = Path(__file__).parents[2]
SEED = 25


def test_a_trace_says_who_did_what() -> None:
    """Records with their judgement, what was done to whom, effects, commits, and when it became calm."""
    outcome = run_seed(SEED, ("step-kill", "step-pause", "network"), traced=True)
    assert outcome.trace is not None
    text = "\n".join(outcome.trace.lines)
    for said in ("CLAIM PartitionClaimed", "VALID ToolCallRequested", "EFFECT r", "*** SIGKILL at step", "--- calm"):
        assert said in text
    assert "commit of partition 0" in text
    times = [float(line.split()[0]) for line in outcome.trace.lines]
    assert times == sorted(times)


def test_the_command_prints_the_seed_first_and_reproduces_the_run() -> None:
    command = [sys.executable, "-m", "tests.simulation", str(SEED), "--faults", "kill"]
    first, again = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first.startswith(f"seed {SEED}: Plan(")
    digests = [next(word for word in text.split() if len(word.strip(":")) == 64) for text in (first, again)]
    assert digests[0] == digests[1]


def test_whatever_a_seed_raises_is_its_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that raises, or spins, is one of those that are listed; the others go on."""

    def spin(_: int) -> None:
        while True:
            pass

    monkeypatch.setattr(many, "SPINNING_S", 0.2)
    monkeypatch.setattr(many, "run_seed", spin)
    report = report_of(7)
    assert report.seed == 7
    assert "seed 7 has taken 0.2 s of a processor" in report.problems[0]
