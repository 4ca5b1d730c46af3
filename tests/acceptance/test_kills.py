"""Executors, compactor and reconciler killed with SIGKILL at random moments, under many runs at once."""

import os
import random
import sys
import threading
import time

import pytest

from demo.processes import Command, Service, Services
from demo.world import World
from tests.acceptance.crowd import Crowd, await_end, await_settled, crowd_script, wrongs
from tests.acceptance.installing import Install

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KILLS = 20
RUNS_A_KILL = 2
# Long enough for a burst of runs to be in the middle of something, often shorter than a take-over (3 s).
PAUSE_S = (0.2, 1.5)
SETTLED_VICTIMS = 0.5
"""Share of the kills that wait until the victim has taken over partitions; the others may hit it while it starts."""
END_S = 90.0
EXECUTOR: Command = "runfold-step-executor"
OTHERS: dict[int, Command] = {
    4: "runfold-snapshot-compactor",
    8: "runfold-reconciler",
    11: "runfold-snapshot-compactor",
    15: "runfold-reconciler",
    18: "runfold-snapshot-compactor",
}


def test_twenty_kills_leave_one_effect_per_key(install: Install) -> None:
    """Killed twenty times at random: every run completes, each key has one effect, no recorded answer is asked again.

    KILLS_SEED in the environment repeats the moments and the victims of a run.
    """
    seed = int(os.environ.get("KILLS_SEED") or time.time_ns() % 1_000_000)
    sys.stdout.write(f"KILLS_SEED={seed}\n")
    chance, latency = random.Random(seed), random.Random(seed + 1)  # noqa: S311 - moments, not secrets
    with World(crowd_script, latency_s=lambda: latency.uniform(0.05, 0.3)) as world:
        installation = install(world)
        with Services(installation.environment, installation.folder / "logs") as services:
            executors = [services.start(EXECUTOR, f"executor-{number}") for number in range(2)]
            others: dict[Command, Service] = {command: services.start(command, command) for command in OTHERS.values()}
            services.await_ready(*executors, *others.values())
            with Crowd(installation) as crowd:
                for kill in range(1, KILLS + 1):
                    victim = chance.randrange(len(executors))
                    if chance.random() < SETTLED_VICTIMS:
                        services.await_ready(executors[victim])
                    crowd.start(RUNS_A_KILL)
                    threading.Event().wait(chance.uniform(*PAUSE_S))
                    services.kill(executors[victim])
                    executors[victim] = services.start(EXECUTOR, f"executor-{kill + 1}")
                    if (command := OTHERS.get(kill)) is not None:
                        services.kill(others[command])
                        others[command] = services.start(command, f"{command}-{kill}")
                rows = await_end(installation, services, crowd.runs, END_S)
            log = await_settled(installation, services)
            found = log.disturbances()
            sys.stdout.write(f"{len(crowd.runs)} runs, disturbed by {KILLS} kills: {found}\n")
            assert wrongs(installation, world, log, crowd.runs, rows) == [], f"KILLS_SEED={seed}"
            assert found["runs of several epochs"] > 0
            assert sum(found.values()) > found["runs of several epochs"]
            for service in list(services.running()):
                services.stop(service)
