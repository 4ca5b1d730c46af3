"""`python -m bench.restoring [--runs 1000] [--turns 1]`: taking over one partition whose runs are all active.

Once from the log alone (the compactor has not run: every event is folded), once from snapshots. The executor is
killed in the middle of a call of each run; its heir says how long it took from its claim to the last run restored.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from bench.driving import Plan, names, submit
from bench.following import Follower
from bench.printing import Figures, progress, rounded, show
from bench.world import COMPACTOR, EXECUTOR, World, opened, own_stack
from demo.installation import SHORT_SESSION
from demo.processes import Service
from demo.watching import await_state
from devstack import Stack
from runfold.core.events import ToolCallRequested

_HOUR_MS = 3_600_000
_SNAPSHOTS = "RUNFOLD_SNAPSHOT_EVERY"


def measure(stack: Stack, runs: int, turns: int) -> Iterator[Figures]:
    """Take over from the log, and from snapshots that cover nearly all of it."""
    yield _restore(stack, runs, turns, with_compactor=False)
    yield _restore(stack, runs, turns, with_compactor=True)


def _restore(stack: Stack, runs: int, turns: int, *, with_compactor: bool) -> Figures:
    plan = replace(Plan(turns=turns), last=("rest", {"ms": _HOUR_MS}))
    with (
        opened(stack, partitions=1, kafka=SHORT_SESSION, extra={_SNAPSHOTS: "5"}) as world,
        Follower(world) as follower,
    ):
        if with_compactor:
            world.services.await_ready(world.services.start(COMPACTOR, "compactor"))
        first = world.services.start(EXECUTOR, "first")
        world.services.await_ready(first)
        submit(world, plan, names(runs))
        follower.await_count(ToolCallRequested, runs * (plan.steps + 1))
        records = sum(follower.counts().values())
        if with_compactor:
            _await_applied(world, records)
        world.services.kill(first)
        heir = world.services.start(EXECUTOR, "heir")
        said = await_state(world.services, "the partition restored", lambda: restored(heir))
    seconds = said["seconds"]
    progress(f"{said['runs']} runs, {records} records, restored in {seconds:.2f} s")
    figures = {
        "what": "restore from snapshots" if with_compactor else "restore from the log",
        "runs": said["runs"],
        "turns": turns,
        "log_records": records,
        "claim_to_restored_s": rounded(seconds),
    }
    return figures if with_compactor else {**figures, "events_per_s": rounded(records / seconds)}


def _await_applied(world: World, records: int) -> None:
    with world.connect() as connection:
        await_state(
            world.services, "everything applied", lambda: True if applied(world, connection) >= records else None
        )


def applied(world: World, connection: psycopg.Connection[Any]) -> int:
    """Give how many log records are folded into Postgres."""
    question = sql.SQL("select coalesce(sum(applied), 0) from {}").format(world.table("partitions"))
    (records,) = connection.execute(question).fetchone() or (0,)
    return int(records)


def restored(service: Service) -> dict[str, Any] | None:
    """Give what a service says of its first partition restored; None: nothing yet."""
    for line in service.log.read_text(encoding="utf-8").splitlines():
        said: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if said.get("event") == "partition_restored":
            return said
    return None


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.restoring")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=1, help="completions that a run has behind it, each of 20 calls")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.turns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
