"""Servers that are killed and come back while calls are in flight: a delay, and nothing else.

tests/chaos does it to many runs, among processes that die. Here the executor lives, so that nothing at all may be
repeated: it knows the outcomes of its calls.
"""

import random
from collections import Counter

import pytest

from demo.processes import Services
from demo.watching import await_state
from demo.world import World
from devstack import Stack
from tests.acceptance.installing import Install
from tests.crowd.aftermath import Aftermath, stop_settled
from tests.crowd.checkers import judge
from tests.crowd.names import KEYLESS
from tests.crowd.people import Pace, People
from tests.crowd.script import Script

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RUNS = 8
_END_S = 120.0


@pytest.mark.parametrize("server", ["kafka", "postgres"])
def test_a_killed_server_that_comes_back_costs_time_only(install: Install, stack: Stack, server: str) -> None:
    """Every run ends; no call, MANUAL ones included, is asked or posted twice, and no person is asked about one."""
    killed = getattr(stack, server)
    if not killed.controllable:
        pytest.skip(f"this {server} is somebody else's")
    latency, script = random.Random(11), Script(11, ("file_ticket", "pay", "publish"))  # noqa: S311 - latencies
    with World(script, lambda: latency.uniform(0.2, 0.8), KEYLESS) as world:
        installation = install(world)
        with Services(installation.environment, installation.folder / "logs") as services:
            executor = services.start("runfold-step-executor", "executor")
            compactor = services.start("runfold-snapshot-compactor", "compactor")
            reconciler = services.start("runfold-reconciler", "reconciler")
            services.await_ready(executor, compactor, reconciler)
            with People(installation, world, script, Pace()) as people:
                people.start(RUNS)
                await_state(services, "a payment", lambda: world.effects("payments") or None)
                killed.kill()
                killed.start()
                await_state(services, "the end of every run", lambda: not people.told.in_flight or None, _END_S)
            stop_settled(installation, services, [executor])
        aftermath = Aftermath.read(installation, world, people.told.started)
    assert judge(aftermath).problems == []
    assert people.told.doubts == 0
    assert set(world.asked.values()) == {1}
    assert set(Counter(post.key for post in world.posts).values()) == {1}
