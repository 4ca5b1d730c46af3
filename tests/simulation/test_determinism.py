"""A seed is a run, byte for byte: in this process, in another, with other hashes and at other addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scenario import run_seed

ROOT = Path(__file__).parents[2]
SEEDS = (1, 7, 25, 1003, 1011)
PROGRAM = """
import sys
ballast = [object() for _ in range(int(sys.argv[1]))]
from tests.simulation.scenario import run_seed
for seed in map(int, sys.argv[2:]):
    outcome = run_seed(seed, traced=True)
    sys.stdout.write(f"{seed} {outcome.digest} {outcome.trace.digest}\\n")
"""


def test_a_seed_is_a_run() -> None:
    """The same seed gives the same records at the same times, another seed others."""
    first, again, other = run_seed(1), run_seed(1), run_seed(2)
    assert first.digest == again.digest
    assert first.digest != other.digest


def test_looking_changes_nothing() -> None:
    """A traced run is the run."""
    assert run_seed(7, traced=True).digest == run_seed(7).digest


@pytest.mark.timeout(120)
def test_a_seed_is_the_same_run_in_another_interpreter() -> None:
    """Neither the hashes of strings nor addresses in memory decide anything: every line of the trace is the same."""
    first = _run_elsewhere("1", 0)
    assert first.count("\n") == len(SEEDS)
    assert _run_elsewhere("2", 100_003) == first


def _run_elsewhere(hash_seed: str, ballast: int) -> str:
    command = [sys.executable, "-c", PROGRAM, str(ballast), *map(str, SEEDS)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
