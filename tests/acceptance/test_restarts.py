"""Servers that are killed and come back while runs are active: a delay, and nothing else."""

import random

import pytest

from demo.processes import Command, Services
from demo.watching import await_state
from demo.world import World
from devstack import Stack
from tests.acceptance.crowd import Crowd, await_end, await_settled, crowd_script, wrongs
from tests.acceptance.installing import Install

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

EXECUTOR: Command = "runfold-step-executor"
RUNS = 6


@pytest.mark.parametrize("server", ["kafka", "postgres"])
def test_a_killed_server_that_comes_back_costs_time_only(install: Install, stack: Stack, server: str) -> None:
    """Every run ends, each key has one effect, and no recorded completion was asked for again."""
    killed = getattr(stack, server)
    if not killed.controllable:
        pytest.skip(f"this {server} is somebody else's")
    latency = random.Random(11)  # noqa: S311 - latencies, not secrets
    with World(crowd_script, latency_s=lambda: latency.uniform(0.05, 0.3)) as world:
        installation = install(world)
        with Services(installation.environment, installation.folder / "logs") as services:
            executors = [services.start(EXECUTOR, f"executor-{number}") for number in range(2)]
            compactor = services.start("runfold-snapshot-compactor", "compactor")
            reconciler = services.start("runfold-reconciler", "reconciler")
            services.await_ready(*executors, compactor, reconciler)
            with Crowd(installation) as crowd:
                crowd.start(RUNS)
                await_state(services, "posts of the runs", lambda: len(world.posts) > 1 or None)
                killed.kill()
                killed.start()
                rows = await_end(installation, services, crowd.runs, 120.0)
            log = await_settled(installation, services)
            assert wrongs(installation, world, log, crowd.runs, rows) == []
