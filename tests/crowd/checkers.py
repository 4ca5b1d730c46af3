"""The invariants as named checkers, over the log, Postgres and the books of the world behind the tools.

Those about log and tables are the simulation's own. Those about the world are of here: it is a real server, and says
by the clock of this machine when a call arrived; the log topic's records are stamped by the broker of this machine
when they are appended. So "the request was durable before the effect" is read off the two, and needs no trust in the
process that was killed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from demo.world import Asked, Posted
from runfold.core.events import ModelCallRequested, ModelResponded, Outcome, ToolReturned
from runfold.core.partitioning import partition_of
from runfold.core.payload import Inline
from runfold.core.state import Status
from runfold.testing.simulation import checkers as simulation
from runfold.testing.simulation.book import Book
from runfold.testing.simulation.ending import Checker as EndingChecker
from runfold.testing.simulation.ending import Ending
from tests.crowd.aftermath import Aftermath, Logged
from tests.crowd.names import COLLECTIONS, KEYLESS, REPEATABLE
from tests.crowd.script import output_of

_WAKES_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class Sleep:
    """A process was suspended from ``from_ms`` to ``to_ms`` (milliseconds since 1970)."""

    pid: int
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class Judged:
    """What the checkers found, and what they let pass.

    Attributes:
        problems: "name of the checker: what is wrong"; none if all is well.
        late_questions: Questions that a suspended process sent when it woke, of a completion recorded meanwhile.
    """

    problems: list[str]
    late_questions: int


Checker = Callable[[Aftermath], Iterator[str]]


# --- what the world saw -----------------------------------------------------------------------------------------


def effects_are_preceded_by_their_durable_request(aftermath: Aftermath) -> Iterator[str]:
    """When a call arrives, the valid request of that very attempt has been appended already."""
    appended = {
        (event.idempotency_key, event.attempt): (logged.at_ms, COLLECTIONS[event.tool])
        for logged, event in aftermath.requests()
    }
    for post in aftermath.world.posts:
        found = appended.get((post.key, post.attempt))
        if found is None:
            yield f"{post.key}, attempt {post.attempt}, was posted without a valid request"
        elif found[0] > post.at_ms or found[1] != post.collection:
            yield f"{post.key}, attempt {post.attempt}, was posted to {post.collection} at {post.at_ms}; asked: {found}"


def each_key_takes_effect_at_most_once(aftermath: Aftermath) -> Iterator[str]:
    """KEYED, for its system refuses a second one; LOOKUP and MANUAL, though their systems would not."""
    effects: defaultdict[tuple[str, str], list[Posted]] = defaultdict(list)
    for post in aftermath.world.posts:
        if post.is_new:
            effects[post.collection, post.key].append(post)
    repeatable = {COLLECTIONS[tool] for tool in REPEATABLE}
    for (collection, key), posts in effects.items():
        if len(posts) > 1 and collection not in repeatable:
            told = ", ".join(f"attempt {post.attempt} of process {post.pid} at {post.at_ms}" for post in posts)
            yield f"{key} took effect {len(posts)} times in {collection}: {told}"


def recorded_results_are_those_of_the_world(aftermath: Aftermath) -> Iterator[str]:
    """What a successful call returned is what the world made for its key; and no effect is left out of the log."""
    returned: dict[str, Logged] = {}
    for run in aftermath.log.events.values():
        for logged in run:
            event = logged.event
            if isinstance(event, ToolReturned) and event.outcome is Outcome.SUCCESS:
                returned[f"{event.run_id}:{event.step}"] = logged
    for tool, collection in COLLECTIONS.items():
        made = aftermath.world.resources.get(collection, {})
        for key, resource in made.items():
            if key not in returned and tool not in REPEATABLE:
                yield f"{key} took effect in {collection}, and the log has no result of it"
            elif key in returned and (said := _result(returned[key])) != resource and collection not in _ANY_RESULT:
                yield f"{key} returned {said}, the world made {resource}"
    known = {key for made in aftermath.world.resources.values() for key in made}
    for key in returned.keys() - known:
        yield f"{key} returned a result, and nothing was made for it"


_ANY_RESULT: Final = frozenset({COLLECTIONS[tool] for tool in REPEATABLE} & KEYLESS)
"""Of what took effect several times the book keeps the first only."""


def _result(logged: Logged) -> object:
    event = logged.event
    assert isinstance(event, ToolReturned)
    assert isinstance(event.result, Inline)
    return json.loads(event.result.data)


def models_are_asked_only_after_their_durable_request(aftermath: Aftermath) -> Iterator[str]:
    """When completion n is asked for, n + 1 steps of the run have a valid model request in the log."""
    for asked in aftermath.world.questions:
        steps = {
            logged.event.step
            for logged in aftermath.log.events.get(asked.conversation, ())
            if isinstance(logged.event, ModelCallRequested) and logged.at_ms <= asked.at_ms
        }
        if len(steps) <= asked.answered:
            yield f"{asked.conversation}: completion {asked.answered} was asked for without a valid request"


def late_questions(aftermath: Aftermath) -> Iterator[tuple[Asked, int]]:
    """Questions whose completion was recorded already, each with when that was (milliseconds since 1970)."""
    for asked in aftermath.world.questions:
        recorded = [
            logged.at_ms
            for logged in aftermath.log.events.get(asked.conversation, ())
            if isinstance(logged.event, ModelResponded)
        ]
        if len(recorded) > asked.answered and recorded[asked.answered] < asked.at_ms:
            yield asked, recorded[asked.answered]


def was_sent_on_waking(asked: Asked, recorded_ms: int, sleeps: Collection[Sleep]) -> bool:
    """Whether the asker slept while the completion was recorded, and the question arrived as it woke.

    It had passed its last check before it was suspended: nothing can hold back what is on its way to the socket.
    """
    return any(
        sleep.pid == asked.pid
        and sleep.from_ms < recorded_ms
        and sleep.to_ms - 1 <= asked.at_ms < sleep.to_ms + _WAKES_MS
        for sleep in sleeps
    )


# --- how it ended -----------------------------------------------------------------------------------------------


def every_run_completes(aftermath: Aftermath) -> Iterator[str]:
    """Somebody answers whatever a run waits for: so each gets to its end, and says what its script says."""
    for run_id in aftermath.started:
        row = aftermath.database.runs.get(run_id)
        if row is None or row.status is not Status.COMPLETED:
            yield f"{run_id} is stuck: {None if row is None else (row.status, row.step, row.parked, row.error)}"
        elif row.output != Inline(json.dumps(output_of(run_id)).encode()):
            yield f"{run_id} ended with {row.output}"


def valid_events_are_numbered_without_a_hole(aftermath: Aftermath) -> Iterator[str]:
    """``seq`` counts a run's valid events from 0."""
    for run_id, run in aftermath.log.events.items():
        if [logged.event.seq for logged in run] != list(range(len(run))):
            yield f"{run_id}: seq has a hole"


CHECKERS: Final[tuple[Checker, ...]] = (
    effects_are_preceded_by_their_durable_request,
    each_key_takes_effect_at_most_once,
    recorded_results_are_those_of_the_world,
    models_are_asked_only_after_their_durable_request,
    every_run_completes,
    valid_events_are_numbered_without_a_hole,
)
SHARED: Final[tuple[EndingChecker, ...]] = (
    simulation.every_input_leaves_one_record,
    simulation.tables_reach_the_end_of_the_log,
    simulation.stored_positions_are_those_of_the_log,
    simulation.rows_say_what_the_log_says,
    simulation.snapshots_are_the_fold_of_the_log,
    simulation.waits_are_those_of_the_log,
    simulation.open_calls_are_those_of_the_log,
    simulation.every_run_ends,
)


def judge(aftermath: Aftermath, sleeps: Collection[Sleep] = ()) -> Judged:
    """Run every checker.

    Args:
        aftermath: What is left.
        sleeps: When which process was suspended.
    """
    problems = [f"{checker.__name__}: {problem}" for checker in CHECKERS for problem in checker(aftermath)]
    ending = _ending(aftermath)
    problems += [f"{checker.__name__}: {problem}" for checker in SHARED for problem in checker(ending)]
    late = list(late_questions(aftermath))
    problems += [
        f"recorded_completions_are_never_asked_for_again: {asked} (recorded at {recorded_ms})"
        for asked, recorded_ms in late
        if not was_sent_on_waking(asked, recorded_ms, sleeps)
    ]
    return Judged(problems, sum(was_sent_on_waking(asked, recorded_ms, sleeps) for asked, recorded_ms in late))


def _ending(aftermath: Aftermath) -> Ending:
    """Give log and tables in the form that the simulation's checkers look at."""
    partitions = aftermath.log.partitions
    return Ending(
        partitions=partitions,
        log_ends=[history.end for history in partitions],
        inputs=aftermath.inputs,
        started=aftermath.started,
        home={run_id: partition_of(run_id, len(partitions)) for run_id in aftermath.started},
        database=aftermath.database,
        stored=aftermath.stored,
        downstream=Book(),
        in_memory={},
        unstopped=[],
        unhandled=[],
    )
