"""Executors that sleep through everything and wake up: SIGSTOP at the exact points of a call, on real Kafka.

They sleep for a minute under `make chaos`; in `make test` for ZOMBIE_PAUSE_S, by default 25 s: clearly past the
session (6 s), the tools' time-out (8 s) and the grace (5 s), after which everybody has concluded that they are dead.
"""

import os
import sys
import time
from collections import Counter

import pytest

from devstack import Stack
from runfold.core.events import Interrupted, RunCompleted, Source, ToolReturned, WaitReason
from tests.chaos.zombies import TOOLS, Point, Woken, collection_of, put_to_sleep_and_wake
from tests.crowd.checkers import judge

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

KEYED, LOOKUP, MANUAL = TOOLS
CASES = [(point, tool) for point in Point for tool in TOOLS]


@pytest.fixture(scope="module")
def woken(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Woken:
    """Tell the story once, for all cases."""
    pause_s = float(os.environ.get("ZOMBIE_PAUSE_S") or 25.0)
    return put_to_sleep_and_wake(stack, tmp_path_factory.mktemp("zombies"), pause_s, _say)


@pytest.mark.parametrize(("point", "tool"), CASES)
def test_one_effect_and_the_run_ends_on_another_executor(woken: Woken, point: Point, tool: str) -> None:
    """The run completes while its executor sleeps, and nothing doubles when that one wakes."""
    run_id = woken.runs[point, tool]
    posts = [post for post in woken.aftermath.world.posts if post.key == f"{run_id}:2"]
    assert sum(post.is_new for post in posts) == 1
    events = [logged.event for logged in woken.aftermath.log.events[run_id]]
    assert isinstance(events[-1], RunCompleted)
    writers = woken.writers(run_id)
    assert writers[0] == woken.zombies[point]
    assert writers[-1] == woken.healthy


@pytest.mark.parametrize("point", [Point.IN_EFFECT, Point.BEFORE_OUTCOME])
def test_an_effect_of_a_sleeper_is_found(woken: Woken, point: Point) -> None:
    """LOOKUP: the reconciler finds what was made; MANUAL: a person says what the book says. Neither is run again."""
    assert _source(woken, point, LOOKUP) is Source.RECONCILED
    assert _source(woken, point, MANUAL) is Source.OPERATOR
    for tool in (LOOKUP, MANUAL):
        posts = [post for post in woken.aftermath.world.posts if post.key == f"{woken.runs[point, tool]}:2"]
        assert [post.pid for post in posts] == [woken.zombies[point]]


def test_what_was_never_performed_is_performed_by_the_next_owner(woken: Woken) -> None:
    """Asleep before the request or before the effect: the healthy executor's is the only one, the sleeper's none."""
    for point in (Point.BEFORE_REQUEST, Point.BEFORE_EFFECT):
        for tool in TOOLS:
            posts = [post for post in woken.aftermath.world.posts if post.key == f"{woken.runs[point, tool]}:2"]
            assert [post.pid for post in posts] == [woken.healthy], (point, tool)


def test_a_keyed_call_that_is_sent_on_waking_has_no_second_effect(woken: Woken) -> None:
    """Asleep between the last check and the send, it does send: the key makes it harmless."""
    posts = [p for p in woken.aftermath.world.posts if p.key == f"{woken.runs[Point.IN_EFFECT, KEYED]}:2"]
    assert [(post.pid, post.is_new) for post in posts] == [
        (woken.healthy, True),
        (woken.zombies[Point.IN_EFFECT], False),
    ]
    assert posts[0].collection == collection_of(KEYED)


def test_only_manual_calls_that_dangle_are_in_doubt(woken: Woken) -> None:
    """A request that was never appended is nobody's question."""
    doubted = Counter(
        logged.event.run_id.split(".")[0]
        for run in woken.aftermath.log.events.values()
        for logged in run
        if isinstance(logged.event, Interrupted) and logged.event.reason is WaitReason.INDETERMINATE
    )
    assert doubted == dict.fromkeys((Point.BEFORE_EFFECT, Point.IN_EFFECT, Point.BEFORE_OUTCOME), 1)
    assert woken.doubts == len(doubted)


def test_the_late_records_are_void_and_all_checkers_are_content(woken: Woken) -> None:
    """What the sleepers appended when they woke stands in the log and changes nothing."""
    assert woken.aftermath.log.void >= 2 * len(TOOLS)
    assert judge(woken.aftermath, woken.sleeps).problems == []


def _source(woken: Woken, point: Point, tool: str) -> Source:
    events = [logged.event for logged in woken.aftermath.log.events[woken.runs[point, tool]]]
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    return returned.source


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
