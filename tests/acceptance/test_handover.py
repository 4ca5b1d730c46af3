"""A clean hand-over: SIGTERM to one executor after the other while runs are active."""

import random
from collections import Counter

import pytest

from demo.processes import Command, Services
from demo.watching import await_state
from demo.world import World
from runfold.core.events import ModelCallRequested, ToolCallRequested
from tests.acceptance.crowd import Crowd, await_end, await_settled, crowd_script, wrongs
from tests.acceptance.installing import Install

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

EXECUTOR: Command = "runfold-step-executor"
HANDOVERS = 4
RUNS_A_HANDOVER = 4
_DRAIN_S = 20.0


def test_a_handover_repeats_nothing(install: Install) -> None:
    """Each executor in turn gets SIGTERM amid active runs: it ends cleanly, and no call has a second attempt."""
    latency = random.Random(7)  # noqa: S311 - latencies, not secrets
    with World(crowd_script, latency_s=lambda: latency.uniform(0.05, 0.3)) as world:
        installation = install(world)
        with Services(installation.environment, installation.folder / "logs") as services:
            executors = [services.start(EXECUTOR, f"executor-{number}") for number in range(2)]
            compactor = services.start("runfold-snapshot-compactor", "compactor")
            services.await_ready(*executors, compactor)
            with Crowd(installation) as crowd:
                for handover in range(HANDOVERS):
                    asked = len(world.questions)
                    crowd.start(RUNS_A_HANDOVER)
                    await_state(services, "questions of new runs", lambda: len(world.questions) > asked or None)  # noqa: B023 - asked at once
                    assert services.stop(executors[handover % 2]) < _DRAIN_S
                    executors[handover % 2] = services.start(EXECUTOR, f"executor-{handover + 2}")
                rows = await_end(installation, services, crowd.runs, 90.0)
            log = await_settled(installation, services)
            for service in list(services.running()):
                services.stop(service)
            assert wrongs(installation, world, log, crowd.runs, rows) == []
            assert log.disturbances()["runs of several epochs"] > 0, "no run was active at any hand-over"
            calls = [
                event
                for run in crowd.runs
                for event in log.events[run]
                if isinstance(event, ModelCallRequested | ToolCallRequested)
            ]
            assert [event for event in calls if event.attempt != 1] == []
            assert set(world.asked.values()) == {1}
            assert set(Counter(post.key for post in world.posts).values()) == {1}
