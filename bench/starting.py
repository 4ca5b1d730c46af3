"""`python -m bench.starting [--repeats 5]`: from the start of an executor's process to its first claim, and imports."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from bench.following import Follower
from bench.printing import Figures, progress, rounded, show
from bench.world import EXECUTOR, World, opened, own_stack
from devstack import Stack

_MODULES: Final = {
    "executor": "runfold_step_executor.__main__, bench.app",
    "compactor": "runfold_snapshot_compactor.__main__",
    "reconciler": "runfold_reconciler.__main__, bench.app",
}


def measure(stack: Stack, repeats: int) -> Iterator[Figures]:
    """Start an executor again and again, each once the one before has ended cleanly."""
    with opened(stack) as world, Follower(world) as follower:
        claims: list[float] = []
        for repeat in range(repeats):
            began = time.monotonic()
            executor = world.services.start(EXECUTOR, "executor")
            claims.append(follower.await_claim(began) - began)
            world.services.await_ready(executor)
            world.services.stop(executor)
            progress(f"start {repeat + 1}: {claims[-1]:.2f} s to the first claim")
        imports = {name: _import_s(world, modules, repeats) for name, modules in _MODULES.items()}
    yield {
        "what": "start to first claim",
        "repeats": repeats,
        "p50_s": rounded(statistics.median(claims)),
        "max_s": rounded(max(claims)),
        **{f"import_{name}_s": rounded(seconds) for name, seconds in imports.items()},
    }


def _import_s(world: World, modules: str, repeats: int) -> float:
    """Give the median seconds of a process that imports some modules, without those of one that imports none."""
    return statistics.median(_process_s(world, f"import {modules}") - _process_s(world, "pass") for _ in range(repeats))


def _process_s(world: World, program: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", program], env=dict(world.installation.environment), check=True)
    return time.monotonic() - began


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.starting")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
