"""A clean hand-over: SIGTERM to one executor after the other while runs are active."""

import random
from collections import Counter

import pytest

from demo.processes import Command, Services
from demo.watching import await_state
from demo.world import World
from runfold.core.events import ModelCallRequested, ToolCallRequested
from tests.acceptance.installing import Install
from tests.crowd.aftermath import Aftermath, stop_settled
from tests.crowd.checkers import judge
from tests.crowd.names import KEYLESS
from tests.crowd.people import Pace, People
from tests.crowd.script import Script

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

EXECUTOR: Command = "runfold-step-executor"
HANDOVERS = 4
RUNS_A_HANDOVER = 4
_DRAIN_S = 20.0
_END_S = 90.0


def test_a_handover_repeats_nothing(install: Install) -> None:
    """Each executor in turn gets SIGTERM amid active runs: it ends cleanly, and no call has a second attempt."""
    latency, script = random.Random(7), Script(7)  # noqa: S311 - latencies, not secrets
    with World(script, lambda: latency.uniform(0.05, 0.3), KEYLESS) as world:
        installation = install(world)
        with Services(installation.environment, installation.folder / "logs") as services:
            executors = [services.start(EXECUTOR, f"executor-{number}") for number in range(2)]
            compactor = services.start("runfold-snapshot-compactor", "compactor")
            services.await_ready(*executors, compactor)
            with People(installation, world, script, Pace(approval_s=(0.0, 0.5))) as people:
                for handover in range(HANDOVERS):
                    asked = len(world.questions)
                    people.start(RUNS_A_HANDOVER)
                    await_state(services, "questions of new runs", lambda: len(world.questions) > asked or None)  # noqa: B023 - asked at once
                    assert services.stop(executors[handover % 2]) < _DRAIN_S
                    executors[handover % 2] = services.start(EXECUTOR, f"executor-{handover + 2}")
                await_state(services, "the end of every run", lambda: not people.told.in_flight or None, _END_S)
            stop_settled(installation, services, executors)
        aftermath = Aftermath.read(installation, world, people.told.started)
    assert judge(aftermath).problems == []
    assert aftermath.log.runs_of_several_epochs > 0, "no run was active at any hand-over"
    calls = [
        logged.event
        for run in aftermath.log.events.values()
        for logged in run
        if isinstance(logged.event, ModelCallRequested | ToolCallRequested)
    ]
    assert [event for event in calls if event.attempt != 1] == []
    assert set(world.asked.values()) == {1}
    assert set(Counter(post.key for post in world.posts).values()) == {1}
