"""Cases of docs/cases.md: a tool that runs longer than the consumer's poll interval and session, on a real Kafka."""

import os
from pathlib import Path

import pytest

from demo.installation import ROOT, Installation
from demo.processes import Services
from demo.watching import await_state
from devstack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# A poll interval may not be shorter than the session.
KAFKA = "session.timeout.ms=3000\nheartbeat.interval.ms=700\nmax.poll.interval.ms=3000\n"
AGENTS = ("waiter", "computer")


def test_a_tool_outlasts_poll_interval_and_session(stack: Stack, tmp_path: Path) -> None:
    """Eight seconds in a tool, three of session and poll interval, two executors: one call, one ``tool_returned``."""
    calls = tmp_path / "calls"
    paths = os.pathsep.join(map(str, (Path(__file__).parent, ROOT, ROOT / "tools")))
    installation = Installation.at(
        stack.environment(),
        tmp_path / "installation",
        app="slow_app:app",
        partitions=2,
        kafka=KAFKA,
        extra={"SLOW_CALLS": str(calls), "PYTHONPATH": paths},
    )
    try:
        installation.runfold("setup")
        with Services(installation.environment, tmp_path / "logs") as services:
            started = [services.start("runfold-step-executor", f"executor-{number}") for number in range(2)]
            started.append(services.start("runfold-snapshot-compactor", "compactor"))
            started.append(services.start("runfold-reconciler", "reconciler"))
            services.await_ready(*started)
            for agent in AGENTS:
                installation.runfold("start", agent, "--input", '"go"', "--run-id", f"run-{agent}")

            def ended() -> bool | None:
                rows = installation.read("list")
                return True if {row["status"] for row in rows} == {"completed"} and len(rows) == len(AGENTS) else None

            await_state(services, "the end of both runs", ended, 60.0)
            for agent in AGENTS:
                types = [event["type"] for event in installation.events(f"run-{agent}")]
                assert types.count("tool_call_requested") == 1
                assert types.count("tool_returned") == 1
        assert sorted(calls.read_text(encoding="utf-8").splitlines()) == sorted(f"run-{agent}:2" for agent in AGENTS)
    finally:
        installation.remove()
