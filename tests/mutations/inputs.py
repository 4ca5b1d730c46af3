"""Faults of inputs: each has one record and one effect, whoever owned the partition when it came."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from runfold import Recovery
from runfold.adapters.memory.publisher import MemoryPublisher
from runfold.codec import inputs as codec_inputs
from runfold.core.events import (
    InputSettled,
    Interrupted,
    ModelResponded,
    RunCompleted,
    RunStarted,
    Settlement,
)
from runfold.core.partitioning import partition_of
from runfold.core.positions import Position, Positions
from runfold.ports.publisher import Published, PublishFailed
from runfold.runtime.executor import inputs as executor_inputs
from runfold.runtime.executor import partition
from runfold.runtime.executor.drivers import Drivers
from runfold.runtime.executor.loader import RunLoader
from runfold.runtime.executor.tenure import Tenure
from runfold.testing.simulation import checkers
from runfold.testing.simulation.cluster import TOPICS
from tests.mutations.planting import ENDS, FENCED, INPUTS, ONCE, RECORDED, Mutation, Planted, replaced
from tests.mutations.stage import Context, LateInputs, Stage, is_a

# --- where the reading goes on ----------------------------------------------------------------------------------


def _taken_over_with(positions_of: Any) -> Planted:
    """A new owner reads its inputs on from other positions than those that the log gives."""

    def mutate(real: Any) -> Any:
        async def take_over(*given: Any) -> Any:
            row, replay = await real(*given)
            stored = {topic: replay.fence.positions.of(topic) for topic in TOPICS.inputs}
            replay.fence.positions = Positions({topic: positions_of(position) for topic, position in stored.items()})
            return row, replay

        return take_over

    return replaced(partition, "take_over", mutate)


def _the_largest_cause_is_the_position() -> Planted:
    return _taken_over_with(lambda position: Position(max(position.above, default=position.next - 1) + 1))


async def _an_input_is_lost_before_a_later_one(stage: Stage) -> None:
    """The record of the first start is lost, that of the second lands in the same epoch."""
    _, log = await stage.ready(stage.one_tool(Recovery.RERUN))
    log.fates.extend(["lost", "ok"])
    await stage.start("r1")
    await stage.start("r2")


def _the_set_above_the_position_is_dropped() -> Planted:
    return _taken_over_with(lambda position: Position(position.next))


async def _an_input_settled_above_a_hole(stage: Stage) -> None:
    """A person's "absent" is settled above a start that was lost; the next attempt is in doubt when it is read."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt == 2:
            await stage.perform(ctx, Recovery.MANUAL)
        raise RuntimeError("connection reset")

    _, log = await stage.ready(stage.one_tool(Recovery.MANUAL, act))
    await stage.start("r1")
    await stage.until(lambda: stage.has(Interrupted))
    log.ack_delay = 0.5
    log.lose = is_a(RunStarted)
    await stage.start("r2")
    await stage.resolve("absent")
    await stage.until(lambda: stage.claims() > 1)
    log.ack_delay = 0.0
    await stage.until(lambda: stage.has(Interrupted, 2) and stage.has(Interrupted, run_id="r2"))
    await asyncio.sleep(5)
    await stage.resolve("result", result={"id": "r1:2"})
    await stage.resolve("result", run_id="r2", result={"id": "r2:2"})


# --- does the run exist -----------------------------------------------------------------------------------------


def _memory_alone_knows_runs() -> Planted:
    async def load(*_: Any) -> None:
        await asyncio.sleep(0)

    return replaced(RunLoader, "load", lambda _: load)


async def _a_start_comes_again(stage: Stage) -> None:
    """The run has ended and left memory."""
    p0, _ = await stage.ready(stage.one_tool(Recovery.RERUN))
    await stage.start()
    await stage.until(lambda: stage.has(RunCompleted) and p0.executor.runs_in_memory == 0)
    await stage.cluster.start("r1", "a", "r1")


def _evicted_without_a_snapshot() -> Planted:
    async def evict(self: Any) -> None:
        await asyncio.sleep(0)
        for driver in [driver for driver in self if driver.at_rest]:
            self._evict(driver)

    return replaced(Drivers, "_evict_covered", lambda _: evict)


async def _the_compactor_is_behind(stage: Stage) -> None:
    """A run waits for its approval, and Postgres has never heard of it."""
    await stage.ready(stage.one_tool(Recovery.KEYED, needs_approval=True))
    [compactor] = [node for node in stage.cluster.nodes if node.process.name.startswith("compactor")]
    compactor.process.pause()
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    await asyncio.sleep(3)
    await stage.cluster.approve("r1", 2)
    await asyncio.sleep(3)
    compactor.resume()


# --- forwarding -------------------------------------------------------------------------------------------------


def _a_copy_has_no_id() -> Planted:
    return replaced(executor_inputs, "parse_origin", lambda real: lambda data: replace(real(data), id=None))


async def _an_input_is_forwarded_twice(stage: Stage) -> None:
    """A person's "absent" stands in the wrong partition; the forwarder's own record is lost, and it copies again."""

    async def act(ctx: Context) -> Any:
        if ctx.attempt > 1:
            await stage.perform(ctx, Recovery.MANUAL)
        raise RuntimeError("connection reset")

    home = partition_of("r1", 2)
    _, log = await stage.ready(stage.one_tool(Recovery.MANUAL, act))
    await stage.start()
    await stage.until(lambda: stage.has(Interrupted))
    log.lose = is_a(InputSettled)
    value = codec_inputs.encode_resolve("r1", 2, "absent", "ops")
    await stage.cluster.send(TOPICS.requests, "r1", value, 1 - home)
    await stage.until(lambda: stage.has(Interrupted, 2))
    await asyncio.sleep(10)
    await stage.resolve("result", result={"id": "r1:2"})


def _settled_before_the_copy() -> Planted:
    def mutate(real: Any) -> Any:
        async def forward(tenure: Any, record: Any, parsed: Any, cause: Any) -> None:
            await tenure.settle(tenure.settled(cause, Settlement.FORWARDED, parsed.run_id, None))
            await real(tenure, record, parsed, cause)

        return forward

    return replaced(executor_inputs, "_forward", mutate)


class _Broken(MemoryPublisher):
    async def publish(self, *_: Any, **__: Any) -> Published:
        await asyncio.sleep(0)
        raise PublishFailed("the broker is away")


async def _a_forwarder_dies(stage: Stage) -> None:
    """P0 cannot publish, and dies trying to forward a start."""
    app = stage.one_tool(Recovery.RERUN)
    stage.cluster.publisher = _Broken
    p0, _ = await stage.ready(app)
    await stage.start(partition=1 - partition_of("r1", 2))
    await asyncio.sleep(2)
    p0.kill()
    stage.cluster.publisher = MemoryPublisher
    await stage.ready(app, "p1")


# --- one record, one effect -------------------------------------------------------------------------------------


def _old_tasks_go_on() -> Planted:
    """Drivers are not cancelled with their epoch, and write through the writer of the next one."""
    tenures: dict[tuple[int, int], list[Tenure]] = {}
    kept: set[asyncio.Task[Any]] = set()

    class Detached:
        def create_task(self, work: Any, *, name: str | None = None) -> asyncio.Task[Any]:
            task = asyncio.create_task(work, name=name)
            kept.add(task)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return task

    def mutate(real: Any) -> Any:
        def init(self: Drivers, tenure: Tenure, _: Any) -> None:
            real(self, tenure, Detached())
            old = tenures.setdefault((id(tenure.world), tenure.partition), [])
            for one in old:
                one.writer = tenure.writer
            old.append(tenure)

        return init

    return replaced(Drivers, "__init__", mutate)


async def _a_decision_is_being_made_when_the_epoch_ends(stage: Stage) -> None:
    """The author's approval function takes its time; meanwhile a record is lost, and the process claims again."""

    async def gate(_: Context) -> None:
        await asyncio.sleep(3)

    act = stage.tool(Recovery.MANUAL)
    act.approval(gate)
    other = stage.tool(Recovery.RERUN, name="other")
    _, log = await stage.ready(stage.app(act, other))
    await stage.start()
    await stage.until(lambda: stage.has(ModelResponded))
    log.fates.append("lost")
    stage.runs.append("r2")
    await stage.cluster.start("r2", "a", "r2")


MUTATIONS = (
    Mutation(
        "largest-cause-as-position",
        "inputs are read on behind the largest settled offset",
        INPUTS,
        checkers.every_input_leaves_one_record,
        _the_largest_cause_is_the_position,
        _an_input_is_lost_before_a_later_one,
    ),
    Mutation(
        "position-without-set",
        "the set of settled offsets above the position is dropped at a take-over",
        FENCED,
        checkers.tools_act_only_after_their_valid_request,
        _the_set_above_the_position_is_dropped,
        _an_input_settled_above_a_hole,
        {"inputs": LateInputs},
    ),
    Mutation(
        "no-such-run-from-memory",
        "a run that is not in memory does not exist",
        RECORDED,
        checkers.recorded_completions_are_never_asked_for_again,
        _memory_alone_knows_runs,
        _a_start_comes_again,
    ),
    Mutation(
        "evicted-without-snapshot",
        "a run at rest leaves memory although no snapshot stands at its last event",
        ENDS,
        checkers.every_run_ends,
        _evicted_without_a_snapshot,
        _the_compactor_is_behind,
    ),
    Mutation(
        "forwarded-without-origin-id",
        "a forwarded copy has no id of its origin",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _a_copy_has_no_id,
        _an_input_is_forwarded_twice,
        {"partitions": 2},
    ),
    Mutation(
        "settled-before-copy",
        "a misplaced input is settled before its copy is acknowledged",
        INPUTS,
        checkers.every_run_ends,
        _settled_before_the_copy,
        _a_forwarder_dies,
        {"partitions": 2},
    ),
    Mutation(
        "old-tasks-go-on",
        "tasks of an epoch that is over are not cancelled, and append in the next one",
        ONCE,
        checkers.manual_and_lookup_effects_happen_at_most_once,
        _old_tasks_go_on,
        _a_decision_is_being_made_when_the_epoch_ends,
    ),
)
