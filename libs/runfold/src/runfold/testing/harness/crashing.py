"""``crash_everywhere``: an author's scenario, once for every await at which an executor's process can die."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

from runfold.core.decisions import Plan
from runfold.core.events import Recovery
from runfold.sdk.app import App
from runfold.sdk.live import version_of
from runfold.testing.harness.engine import Engine
from runfold.testing.harness.findings import PERSON, Finding, Report
from runfold.testing.harness.harness import Harness
from runfold.testing.harness.judging import Played, differences, doubts_of, judged, outcome_of
from runfold.testing.harness.loop import HarnessLoop
from runfold.testing.harness.places import place_of_death
from runfold.testing.harness.purity import Asking, Key, PlannerJudge
from runfold.testing.harness.quiet import quiet_logs
from runfold.testing.simulation.cluster import ExecutorNode
from runfold.testing.simulation.loop import Process

Scenario = Callable[[Harness], Awaitable[Any]]

# Virtual seconds that a scenario with a crash may take longer than the one without, time skipped left out.
_LONGER_S = 7200.0
_QUIET_S = 5.0


def crash_everywhere(  # noqa: PLR0913 - each has a default
    scenario: Scenario,
    app: App | Callable[..., App],
    *,
    world: Callable[[], Any] | None = None,
    every: int = 1,
    limit: int | None = None,
    changing: Collection[str] = (),
    fail_on_indeterminate: bool = False,
    thorough: bool = False,
    progress: Callable[[str], None] | None = None,
    **settings: Any,  # noqa: ANN401 - Harness's own
) -> Report:
    """Run a scenario once without a crash, then once for every await at which the executor's process can die.

    Blocks until it is done, in an async test too (in a thread of its own; the report may be awaited).

    Args:
        scenario: ``async def scenario(harness)``: starts runs, approves, asserts; what it returns is compared.
        app: As ``Harness`` takes it. An ``App`` is shared by all runs: the scenario then resets the fakes it uses.
        world: As ``Harness`` takes it: made anew for each run.
        every: Die at every n-th place only.
        limit: Die at no more places than this, spread evenly.
        changing: Names of tools whose result may be another one each time (they read what changes by itself).
        thorough: Die also where the next owner finds the same world as at the place before: nothing was sent, written
            or called in between.
        fail_on_indeterminate: Where a person would have to decide, that is a finding.
        progress: Told, in words, how far it is; default: on stderr, if it takes longer than some seconds.
        settings: Of ``Harness``.

    Raises:
        Exception: Whatever the scenario raises without a crash.
    """
    search = _Search(
        scenario=scenario,
        make=lambda: Harness(app, world=world, **settings),
        changing=frozenset(changing),
        progress=progress,
        fail_on_indeterminate=fail_on_indeterminate,
        thorough=thorough,
    )

    def work() -> Report:
        with quiet_logs(logging.CRITICAL):
            return search.report(every, limit)

    return _in_own_thread(work) if _has_loop() else work()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_own_thread(work: Callable[[], Report]) -> Report:
    with futures.ThreadPoolExecutor(1, "runfold crash_everywhere") as pool:
        return pool.submit(work).result()


@dataclass
class _Search:
    """One search for places.

    Attributes:
        decisions: Of planners, without a crash.
    """

    scenario: Scenario
    make: Callable[[], Harness]
    changing: frozenset[str]
    progress: Callable[[str], None] | None
    fail_on_indeterminate: bool
    thorough: bool
    decisions: dict[Key, Plan] = field(default_factory=dict)

    def report(self, every: int, limit: int | None) -> Report:
        began = time.monotonic()
        counting = _Counting(thorough=self.thorough)
        calm = self._play(counting, Asking.LISTENING)
        if calm.error is not None:
            return _without_a_crash(calm, calm.error)
        again = self._play(_Watch(), Asking.TWICE)
        report = Report(awaits=counting.awaits)
        for finding in [*calm.planning, *again.planning, *self._unlike(), *_unstable(again, calm)]:
            report.add(finding)
        unstable = {subject for subject, _ in differences(again, calm)}
        recoveries = self._recoveries()
        places = _thinned(counting.places, every, limit)
        limit_s = counting.seconds + _LONGER_S
        for step in places:
            killing = _Killing(step, limit_s)
            played = self._play(killing, Asking.ONCE)
            report.tried += 1
            for finding in judged(played, calm, unstable, recoveries, self.changing):
                finding.places = [played.place or f"never: step {step} was not reached"]
                report.add(finding, is_failure=finding.kind != PERSON or self.fail_on_indeterminate)
            self._tell(report, len(places), began)
        report.seconds = time.monotonic() - began
        return report

    def _play(self, watch: _Watch, asking: Asking) -> Played:
        judge = PlannerJudge(self.decisions, asking)
        with asyncio.Runner(loop_factory=HarnessLoop) as runner:
            played = runner.run(self._scene(watch, judge))
        played.planning = judge.findings
        return played

    async def _scene(self, watch: _Watch, judge: PlannerJudge) -> Played:
        played = Played()
        harness = self.make()
        engine = harness.engine
        engine.journal.judge = judge
        watch.attach(engine, played)
        async with harness:
            try:
                played.value = await watch.limited(self.scenario(harness))
            except Exception as error:  # noqa: BLE001 - what an author's scenario raises is what is looked for
                played.error = error
            watch.detach()
            engine.traps.clear()
            played.runs = {run_id: outcome_of(state) for run_id, state in engine.ledger.refresh().runs.items()}
            played.in_doubt = [doubt for state in engine.ledger.runs.values() for doubt in doubts_of(state)]
            played.calls = list(engine.journal.calls)
        return played

    def _recoveries(self) -> dict[str, Recovery]:
        return {tool.name: tool.recovery for agent in self.make().app().agents for tool in agent.tools}

    def _unlike(self) -> list[Finding]:
        """Build the app twice, as two processes do: its runs must be able to move from one to the other."""
        first, second = self.make().app(), self.make().app()
        return [] if first is second else list(_unlike(first, second))

    def _tell(self, report: Report, places: int, began: float) -> None:
        seconds = time.monotonic() - began
        if self.progress is None and seconds - report.seconds < _QUIET_S:
            return
        report.seconds = seconds
        tell = self.progress or _on_stderr
        tell(f"crash_everywhere: {report.tried} of {places} places, {len(report.findings)} findings, {seconds:.0f} s")


def _without_a_crash(calm: Played, error: BaseException) -> Report:
    """Raise what the scenario raises, unless a planner is to blame, which is more to the point."""
    if not calm.planning:
        error.add_note("crash_everywhere: the scenario fails without any crash")
        raise error
    report = Report()
    for finding in [*calm.planning, Finding("scenario", f"{type(error).__name__}: {error}", "")]:
        report.add(finding)
    return report


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - progress of something that takes long


def _unstable(again: Played, calm: Played) -> list[Finding]:
    if again.error is not None:
        what = f"{type(again.error).__name__}: {again.error}; does each run have fakes of its own?"
        return [Finding("unstable", what, "")]
    return [Finding("unstable", what, subject) for subject, what in differences(again, calm)]


def _unlike(first: App, second: App) -> list[Finding]:
    found: list[Finding] = []
    for one, other in zip(first.agents, second.agents, strict=True):
        here, there = version_of(one, ""), version_of(other, "")
        changed = [name for name, signature in here.tools if (name, signature) not in there.tools]
        parts = [f"tool {name}" for name in changed]
        parts += ["instructions or settings"] if here.prompt_hash != there.prompt_hash else []
        parts += ["model"] if here.model != there.model else []
        if parts:
            what = (
                f"{', '.join(parts)} of agent {one.name!r}: built twice, two versions (a default or a text that is "
                "computed at import?); its runs wait with version_mismatch after every restart"
            )
            found.append(Finding("definition", what, one.name))
    return found


def _thinned(places: Sequence[int], every: int, limit: int | None) -> list[int]:
    chosen = list(places[:: max(1, every)])
    if limit is None or limit >= len(chosen):
        return chosen
    return [chosen[index * len(chosen) // limit] for index in range(limit)]


# --- who watches the first executor's steps ----------------------------------------------------------------------


class _Watch:
    """Watches the first executor's process, from the first input to the scenario's end."""

    def __init__(self) -> None:
        self.limit_s: float | None = None
        self._node: ExecutorNode | None = None
        self._has_begun = False

    def attach(self, engine: Engine, played: Played) -> None:
        self._engine = engine
        self._played = played
        engine.on_executor = self._take
        engine.on_input = self._begin

    def detach(self) -> None:
        if self._node is not None:
            self._node.process.on_step = None

    def _take(self, node: ExecutorNode) -> None:
        if self._node is None:
            self._node = node

    def _begin(self) -> None:
        if not self._has_begun and self._node is not None:
            self._has_begun = True
            self._node.process.on_step = self.on_step

    def on_step(self, process: Process) -> None:
        """Let the process go on."""

    async def limited(self, scenario: Awaitable[Any]) -> Any:  # noqa: ANN401 - the author's value
        if self.limit_s is None:
            return await scenario
        async with asyncio.timeout(self.limit_s):
            return await scenario


class _Counting(_Watch):
    """Counts the places, and tells those apart that leave another world behind.

    Attributes:
        awaits: All places.
        places: Steps before which the process can die, without those that leave the same world as the one before.
        seconds: Virtual seconds of the scenario.
    """

    def __init__(self, *, thorough: bool) -> None:
        super().__init__()
        self._thorough = thorough
        self.awaits = 0
        self.seconds = 0.0
        self.places: list[int] = []

        self._world: object = None

    def on_step(self, process: Process) -> None:
        """Count a place; what the last step left as it was, the next owner finds as it was."""
        self.awaits += 1
        world = self._engine.world(process)
        if self._thorough or world != self._world:
            self.places.append(process.steps)
        self._world = world

    async def limited(self, scenario: Awaitable[Any]) -> Any:  # noqa: ANN401 - the author's value
        """Note how long it takes."""
        loop = asyncio.get_running_loop()
        try:
            return await super().limited(scenario)
        finally:
            self.seconds = loop.time()


class _Killing(_Watch):
    """Kills the process before one of its steps."""

    def __init__(self, step: int, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._step = step

    def on_step(self, process: Process) -> None:
        if process.steps != self._step or self._node is None:
            return
        engine = self._engine
        events = engine.ledger.refresh().events
        running = engine.journal.running_in(process)
        self._played.place = place_of_death(events, running, engine.journal.calls, process)
        process.on_step = None
        engine.kill(self._node)
