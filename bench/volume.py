"""`python -m bench.volume [--runs 100] [--turns 1] [--payload 100]`: bytes of a step in the log and in Postgres.

A step's payload is its arguments and its result, a text of ``--payload`` bytes, as JSON. What a run has beside its
steps (start, completions, end) is in ``log_bytes``, shared among them; ``step_overhead_bytes`` is of the step's own two
records.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from psycopg import sql

from bench.driving import CALLS, Plan, drive
from bench.following import Follower
from bench.printing import Figures, progress, rounded, show
from bench.world import World, opened, own_stack
from devstack import Stack
from runfold.codec.log import type_name
from runfold.core.events import RunCompleted, ToolCallRequested, ToolReturned

_TABLES = ("runs", "snapshots", "message_chunks", "waits", "open_calls", "leases")


def measure(stack: Stack, runs: int, turns: int, calls: int, payload: int) -> Iterator[Figures]:
    """Let runs end and look at what they have left."""
    arguments = {"size": payload}
    plan = Plan(turns=turns, calls=calls, call=("fetch", arguments))
    carried = len(json.dumps(arguments, separators=(",", ":"))) + len(json.dumps("x" * payload))
    steps = runs * plan.steps
    with opened(stack) as world, Follower(world) as follower:
        started = world.start_all()
        disk_before = _log_on_disk(world, stack)
        drive(world, plan, runs)
        follower.await_count(RunCompleted, runs)
        for service in started.values():
            world.services.stop(service)
        sizes = follower.sizes()
        own = sizes[ToolCallRequested] + sizes[ToolReturned]
        log, disk = sum(sizes.values()) / steps, _log_on_disk(world, stack)
        rows, tables = _postgres(world)
    parts = {f"log_bytes_in_{type_name(kind)}": rounded(size / steps) for kind, size in sorted(sizes.items(), key=str)}
    progress(f"{runs} runs of {plan.steps} steps, {carried} bytes of payload each: measured")
    yield {
        "what": "bytes a step",
        "runs": runs,
        "turns": turns,
        "calls": calls,
        "payload_bytes": carried,
        "log_bytes": rounded(log),
        "step_overhead_bytes": rounded(own / steps - carried),
        **parts,
        "log_bytes_on_disk": None if disk is None or disk_before is None else rounded((disk - disk_before) / steps),
        "postgres_row_bytes": rounded(rows / steps),
        "postgres_table_bytes": rounded(tables / steps),
    }


def _log_on_disk(world: World, stack: Stack) -> int | None:
    """Give the bytes of the log's segments, None where the broker's folder is not ours to see."""
    folder = Path(stack.folder) / "kafka" / "data"
    segments = list(folder.glob(f"{world.topic('log')}-*/*.log"))
    return sum(segment.stat().st_size for segment in segments) if segments else None


def _postgres(world: World) -> tuple[int, int]:
    """Give the bytes of all rows, and those that the tables with their indexes take after ``vacuum full``."""
    rows = tables = 0
    with world.connect() as connection:
        for name in _TABLES:
            table = world.table(name)
            connection.execute(sql.SQL("vacuum full {}").format(table))
            row = connection.execute(
                sql.SQL(
                    "select coalesce(sum(pg_column_size(t.*)), 0)::bigint, pg_total_relation_size({}) from {} t"
                ).format(sql.Literal(f"{world.installation.schema}.{name}"), table)
            ).fetchone()
            rows, tables = (rows + row[0], tables + row[1]) if row else (rows, tables)
    return rows, tables


def main(arguments: Sequence[str]) -> int:
    """Measure on a stack of its own."""
    parser = argparse.ArgumentParser(prog="python -m bench.volume")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--turns", type=int, default=1, help="completions of a run")
    parser.add_argument("--calls", type=int, default=CALLS, help="of each completion, one after the other")
    parser.add_argument("--payload", type=int, default=100, help="bytes of the text that a call returns")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        show(measure(stack, given.runs, given.turns, given.calls, given.payload))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
