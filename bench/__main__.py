"""`python -m bench [runs ...]`: a JSON object a line for each number of concurrent runs.

A step is one durable no-op tool execution: request appended and acknowledged, tool called, outcome appended. Executor,
compactor and reconciler run beside each other as processes, on a real Kafka and a real Postgres. The bare loop of
the same run appends twice a step and waits for each acknowledgement, with nothing else running. Medians of five.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg
import uvloop
from confluent_kafka import Producer
from psycopg import sql

from bench.app import STEPS
from demo.errors import DemoError
from demo.installation import ROOT, Installation
from demo.processes import Services
from devstack import Stack
from runfold.adapters.kafka.config import KafkaConfig
from runfold.adapters.kafka.log import KafkaLog
from runfold.ports.log import AppendFailed
from runfold.ports.topics import Topics

_PARTITIONS: Final = 12
_LEVELS: Final = (1, 100)
_REPEATS: Final = 5
_WARM_UP: Final = 20
_PATIENCE_S: Final = 300.0
_BARE_RECORD: Final = b"x" * 300


def main(arguments: Sequence[str]) -> int:
    """Measure at each number of concurrent runs; 1 and 100 unless told."""
    levels = [int(argument) for argument in arguments] or list(_LEVELS)
    with Stack.start(ROOT, services=("kafka", "postgres")) as stack:
        folder = stack.folder / "bench"
        installation = Installation.at(
            stack.environment(),
            folder,
            app="bench.app:app",
            partitions=_PARTITIONS,
            kafka="",
            extra={"BENCH_TIMES": str(folder / "times.json")},
        )
        installation.runfold("setup")
        installation.runfold("setup", "--topic-prefix", f"{installation.topics}bare.")
        for runs in levels:
            bare = uvloop.run(_bare(installation, runs))
            measured = _measure(installation, runs, folder / "times.json")
            print(json.dumps({**measured, "bare_loop_steps_per_s": round(bare)}), flush=True)
    return 0


def _measure(installation: Installation, runs: int, times: Path) -> dict[str, Any]:
    times.unlink(missing_ok=True)
    with Services(installation.environment, installation.folder / "logs") as services:
        executor = services.start("runfold-step-executor", "executor")
        others = [
            services.start("runfold-snapshot-compactor", "compactor"),
            services.start("runfold-reconciler", "reconciler"),
        ]
        try:
            services.await_ready(executor, *others)
            _run(installation, services, _WARM_UP)  # the first runs of a process are slow
            measured = [_run(installation, services, runs) for _ in range(_REPEATS)]
        except (DemoError, TimeoutError):
            print(services.tails(), file=sys.stderr)
            raise
        services.stop(executor)
        starts = json.loads(times.read_text(encoding="utf-8"))
        for service in others:
            services.stop(service)
    summaries = [_summary(runs, {run_id: starts[run_id] for run_id in run_ids}) for run_ids in measured]
    return {key: statistics.median(summary[key] for summary in summaries) for key in summaries[0]}


def _run(installation: Installation, services: Services, runs: int) -> list[str]:
    """Start so many runs at once and wait for their end; gives their ids."""
    name = uuid.uuid4().hex[:8]
    run_ids = [f"{name}-{number}" for number in range(runs)]
    producer = Producer({"bootstrap.servers": installation.bootstrap, "partitioner": "murmur2_random"})
    for run_id in run_ids:
        value = json.dumps({"type": "run_started", "run_id": run_id, "agent": "bench", "input": "go"})
        producer.produce(f"{installation.topics}requests", key=run_id, value=value)
    producer.flush(_PATIENCE_S)
    deadline = time.monotonic() + _PATIENCE_S
    with psycopg.connect(installation.environment["RUNFOLD_POSTGRES_DSN"], autocommit=True) as connection:
        table = sql.Identifier(installation.schema, "runs")
        question = sql.SQL("select count(*) from {} where run_id like %s and status = 'completed'").format(table)
        while connection.execute(question, (f"{name}-%",)).fetchone() != (runs,):
            services.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{runs} runs should have ended within {_PATIENCE_S:.0f} s")
            time.sleep(0.05)
    return run_ids


def _summary(runs: int, starts: Mapping[str, list[float]]) -> dict[str, Any]:
    """Steps per second over all runs; the time of a step: from its start to the start of the next in the same run."""
    gaps = sorted(later - earlier for times in starts.values() for earlier, later in pairwise(times))
    began, ended = min(times[0] for times in starts.values()), max(times[-1] for times in starts.values())
    steps = runs * STEPS
    return {
        "runs": runs,
        "steps": steps,
        "steps_per_s": round((steps - runs) / (ended - began)),
        "p50_ms": round(statistics.median(gaps) * 1000, 3),
        "p99_ms": round(gaps[int(len(gaps) * 0.99)] * 1000, 3),
    }


async def _bare(installation: Installation, runs: int) -> float:
    """Two awaited appends a step, so many loops at once; steps per second."""
    config = KafkaConfig(installation.bootstrap)
    log = KafkaLog(config, Topics(f"{installation.topics}bare."))
    await log.start()

    async def append(partition: int) -> None:
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_ack(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                acknowledged.set_exception(result)
            else:
                acknowledged.set_result(result)

        log.append(partition, None, b"", _BARE_RECORD, on_ack)
        await acknowledged

    async def loop(number: int) -> None:
        for _ in range(2 * STEPS):
            await append(number % _PARTITIONS)

    try:
        await asyncio.gather(*(loop(number) for number in range(_WARM_UP)))
        rates = []
        for _ in range(_REPEATS):
            began = time.monotonic()
            await asyncio.gather(*(loop(number) for number in range(runs)))
            rates.append(runs * STEPS / (time.monotonic() - began))
        return statistics.median(rates)
    finally:
        await log.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
