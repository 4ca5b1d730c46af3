"""Starting runs and seeing them end, as somebody outside does: a record in ``requests``, a row in Postgres."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Final

from confluent_kafka import Producer
from psycopg import sql

from bench.world import PATIENCE_S, World

CALLS: Final = 20
_LOOK_S: Final = 0.02
# Looking counts all rows of the runs: it takes no more than this part of the time, since Postgres is measured as well.
_LOOKING_PART: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25

Call = tuple[str, dict[str, Any]]
NOOP: Final[Call] = ("noop", {})


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does: ``turns`` completions of ``calls`` calls each, one call after the other, then ``last``."""

    turns: int = 1
    calls: int = CALLS
    call: Call = NOOP
    last: Call | None = None

    @property
    def steps(self) -> int:
        """How many calls are executed, the last one not counted."""
        return self.turns * self.calls


@dataclass(frozen=True, slots=True)
class Driven:
    """Runs that have ended.

    Attributes:
        run_ids: All of them.
        applied: CLOCK_MONOTONIC and the number of log records applied then, from before the start to the end.
    """

    run_ids: list[str]
    applied: list[tuple[float, int]]

    def behind(self, last_step: float) -> tuple[int, float]:
        """Give the records that the compactor was behind when the last step began, and the seconds until it was not."""
        end, records = self.applied[-1]
        then = max((records for at, records in self.applied if at <= last_step), default=0)
        return records - then, end - last_step


def names(count: int) -> list[str]:
    """Make up run ids that have the same beginning."""
    stem = uuid.uuid4().hex[:8]
    return [f"{stem}-{number}" for number in range(count)]


def pattern_of(run_ids: list[str]) -> str:
    """Give what SQL's ``like`` finds these runs by, which ``names`` has made up."""
    return f"{run_ids[0].partition('-')[0]}-%"


def submit(world: World, plan: Plan, run_ids: list[str], producer: Producer | None = None) -> None:
    """Start runs, all at once, and wait until Kafka has their starts."""
    producer = producer or world.producer()
    for run_id in run_ids:
        value = {"type": "run_started", "run_id": run_id, "agent": "bench", "input": asdict(plan)}
        producer.produce(world.topic("requests"), key=run_id, value=json.dumps(value))
        producer.poll(0)
    if producer.flush(PATIENCE_S):
        raise TimeoutError("the broker should have acknowledged the starts of the runs")


def drive(world: World, plan: Plan, runs: int) -> Driven:
    """Start so many runs at once and wait until Postgres says that they have ended."""
    run_ids = names(runs)
    question = sql.SQL(
        "select (select count(*) from {runs} where run_id like %s and status = 'completed'),"
        " (select coalesce(sum(applied), 0)::bigint from {partitions})"
    ).format(runs=world.table("runs"), partitions=world.table("partitions"))
    applied: list[tuple[float, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    with world.connect() as connection:

        def look() -> tuple[int, float]:
            began = time.monotonic()
            ended, records = connection.execute(question, (pattern_of(run_ids),)).fetchone() or (0, 0)
            applied.append((time.monotonic(), records))
            return int(ended), applied[-1][0] - began

        look()
        submit(world, plan, run_ids)
        while True:
            ended, took = look()
            if ended >= runs:
                break
            world.services.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{runs} runs should have ended within {PATIENCE_S:.0f} s")
            time.sleep(min(max(_LOOK_S, took / _LOOKING_PART), _LONGEST_PAUSE_S))
    return Driven(run_ids, applied)
