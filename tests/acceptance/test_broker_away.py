"""A broker that is away for several sessions: the executors come back by themselves, and nothing known is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import pytest

from bench.stepping import LogWatch, settle, start_runs, wait_until
from demo.installation import Installation
from demo.processes import Command, Services
from demo.watching import await_state
from devstack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

EXECUTOR: Final[Command] = "runfold-step-executor"
PARTITIONS: Final = 4
AWAY_S: Final = 30.0
"""Five sessions of 6 s; the calls in flight answer after 6 s."""
NAP_REQUESTED: Final = 3
"""`seq` of the request of the long call: run started, model called, model responded, and it."""


def test_no_call_is_in_doubt_and_no_partition_without_an_owner(stack: Stack, tmp_path: Path) -> None:
    """In the middle of MANUAL calls, which answer meanwhile: none is made twice, none becomes indeterminate.

    No executor has to be started again, and every partition serves new runs.
    """
    if not stack.kafka.controllable:
        pytest.skip("this kafka is somebody else's")
    installation = Installation.at(stack.environment(), tmp_path, app="bench.stepping_app:app", partitions=PARTITIONS)
    try:
        installation.runfold("setup")
        with (
            Services(installation.environment, tmp_path / "logs") as services,
            LogWatch(installation, PARTITIONS) as watch,
        ):
            executors = [services.start(EXECUTOR, f"executor-{number}") for number in range(2)]
            services.await_ready(*executors, services.start("runfold-snapshot-compactor", "compactor"))
            settle(services, watch, {executor.pid for executor in executors})
            naps = start_runs(installation, set(range(PARTITIONS)), PARTITIONS, "napper")
            wait_until(
                lambda: all(watch.seq_of(run) >= NAP_REQUESTED for run in naps), services, "the request of every call"
            )
            stack.kafka.kill()
            try:
                threading.Event().wait(AWAY_S)
            finally:
                stack.kafka.start()
            later = start_runs(installation, set(range(PARTITIONS)), PARTITIONS, "brief")
            _await_completed(installation, services, [*naps, *later])
            for run in naps:
                events = installation.events(run)
                assert [event for event in events if event["type"] == "interrupted"] == []
                assert {event["attempt"] for event in events if "attempt" in event} == {1}
    finally:
        installation.remove()


def _await_completed(installation: Installation, services: Services, run_ids: list[str]) -> None:
    """Wait until Postgres knows the end of all of some runs; a service that ends meanwhile is an error."""

    def ask() -> bool | None:
        rows = {row["run_id"]: row["status"] for row in installation.read("list", "--limit", "1000")}
        return True if all(rows.get(run_id) == "completed" for run_id in run_ids) else None

    await_state(services, f"the end of {', '.join(run_ids)}", ask, 90.0)
