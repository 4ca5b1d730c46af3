"""`python -m bench.wake [--runs 50] [--beside 0]`: how long it takes until a run goes on that was told something.

From just before a foreign producer hands the record over until a reader of the log sees what it caused, so the
reader's own millisecond is in it. One at a time, on a broker that is warm, nothing else running but ``--beside`` runs
that wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Producer

from bench.driving import Plan, names, submit
from bench.following import Follower
from bench.printing import Figures, p99, progress, rounded, show
from bench.steps import warm_up
from bench.world import World, metric, opened, own_stack
from demo.processes import Service
from demo.watching import await_state
from devstack import Stack
from runfold.core.events import Interrupted, ModelCallRequested, Resumed

_WARM_UP_S = 60.0
_WARM_UP_RUNS = 20
_GATED = Plan(turns=0, last=("gate", {}))


def measure(stack: Stack, runs: int, beside: int = 0) -> Iterator[Figures]:
    """Measure each way of waking so many times, with ``beside`` other runs that wait as rows."""
    with opened(stack) as world, Follower(world, ModelCallRequested, Interrupted, Resumed) as follower:
        services = world.start_all()
        executor, outside = services["executor"], world.producer()
        warm_up(world, world.processes(services), _WARM_UP_S)
        submit(world, _GATED, others := names(beside))
        for run_id in others:
            follower.await_first(run_id, Interrupted)
        for run_id in names(_WARM_UP_RUNS):
            _start(world, outside, follower, run_id)
            _approve(world, outside, follower, run_id)
        await_rows(world, executor)
        started: list[float] = []
        in_memory: list[float] = []
        for run_id in names(runs):
            started.append(_start(world, outside, follower, run_id))
            in_memory.append(_approve(world, outside, follower, run_id))
        rows = names(runs)
        submit(world, _GATED, rows)
        for run_id in rows:
            follower.await_first(run_id, Interrupted)
        await_rows(world, executor)
        as_rows = [_approve(world, outside, follower, run_id) for run_id in rows]
    yield _figures("run_started to first request", started, beside)
    yield _figures("approval to resumed, run in memory", in_memory, beside)
    yield _figures("approval to resumed, run a row", as_rows, beside)


def await_rows(world: World, executor: Service) -> None:
    """Wait until the executor holds no run in memory."""
    await_state(
        world.services,
        "no run in memory",
        lambda: True if metric(executor, "runfold_executor_runs_in_memory") == 0 else None,
        120.0,
    )


def _start(world: World, outside: Producer, follower: Follower, run_id: str) -> float:
    """Start a run and wait for its gate; gives the seconds to its first request."""
    began = time.monotonic()
    submit(world, _GATED, [run_id], outside)
    follower.await_first(run_id, Interrupted)
    return follower.await_first(run_id, ModelCallRequested)[0] - began


def _approve(world: World, outside: Producer, follower: Follower, run_id: str) -> float:
    """Approve a run's gate; gives the seconds until it has resumed."""
    _, opened_gate = follower.await_first(run_id, Interrupted)
    value: dict[str, Any] = {"type": "approval", "run_id": run_id, "decision": "approved", "approved_by": "bench"}
    value["approval_id"] = opened_gate.wait_id if isinstance(opened_gate, Interrupted) else ""
    began = time.monotonic()
    outside.produce(world.topic("approvals"), key=run_id, value=json.dumps(value))
    outside.flush()
    return follower.await_first(run_id, Resumed)[0] - began


def _figures(what: str, seconds: Sequence[float], beside: int) -> Figures:
    ordered = sorted(seconds)
    progress(f"{what}: measured")
    return {
        "what": what,
        "repeats": len(ordered),
        "waiting_beside": beside,
        "p50_ms": rounded(statistics.median(ordered) * 1000),
        "p99_ms": rounded(p99(ordered) * 1000),
    }


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.wake")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--beside", type=int, default=0, help="other runs that wait")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.beside))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
