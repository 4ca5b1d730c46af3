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
# Plays in which a place is looked for: where real threads or sockets are at work, one play is not quite as another.
_PLAYS = 3


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
        missed: list[_Place] = []
        for place in places:
            played = self._killed(place, limit_s)
            if played.place is None:
                missed.append(place)
            else:
                report.tried += 1
                for finding in judged(played, calm, unstable, recoveries, self.changing):
                    finding.places = [played.place]
                    report.add(finding, is_failure=finding.kind != PERSON or self.fail_on_indeterminate)
            self._tell(report, len(places), began)
        if missed:
            report.add(_unreached(missed, len(places)))
        report.seconds = time.monotonic() - began
        return report

    def _killed(self, place: _Place, limit_s: float) -> Played:
        """Play until the process has died at a place; after some plays without, give the last."""
        for _ in range(_PLAYS - 1):
            played = self._play(_Killing(place, limit_s), Asking.ONCE)
            if played.place is not None:
                return played
        return self._play(_Killing(place, limit_s), Asking.ONCE)

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


def _unreached(missed: Sequence[_Place], places: int) -> Finding:
    """Say that something was not tried: a report without this would vouch for places where nothing has died."""
    more = f"; and {len(missed) - 1} more" if len(missed) > 1 else ""
    what = (
        f"{len(missed)} of {places} places came when they were counted, and not when the process was to die there: "
        f"{missed[0].words}{more}. Does what runs there depend on real time, chance, or what an earlier run left?"
    )
    return Finding("unreached", what, "")


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


def _thinned(places: Sequence[_Place], every: int, limit: int | None) -> list[_Place]:
    chosen = list(places[:: max(1, every)])
    if limit is None or limit >= len(chosen):
        return chosen
    return [chosen[index * len(chosen) // limit] for index in range(limit)]


# --- who watches the first executor's steps ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A step before which the process can die, told so that another play has it too.

    Attributes:
        world: What the process leaves behind there.
        steps: Which one it is of the steps that leave this behind. Not of all: where real threads or sockets are at
            work, there are more or fewer steps in which nothing happens.
        words: Where it is, for people.
    """

    world: tuple[int, ...]
    steps: int
    words: str


class _Watch:
    """Watches the first executor's process, from the first input to the scenario's end."""

    def __init__(self) -> None:
        self.limit_s: float | None = None
        self._node: ExecutorNode | None = None
        self._has_begun = False
        self._world: tuple[int, ...] = ()
        self._steps = 0

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

    def _look(self) -> tuple[tuple[int, ...], int]:
        """Look at the world before a step: give it, and how many steps have found it so, with this one."""
        world = self._engine.world()
        self._steps = self._steps + 1 if world == self._world else 1
        self._world = world
        return world, self._steps

    def _words(self, process: Process) -> str:
        engine = self._engine
        running = engine.journal.running_in(process)
        return place_of_death(engine.ledger.refresh().events, running, engine.journal.calls, process)

    async def limited(self, scenario: Awaitable[Any]) -> Any:  # noqa: ANN401 - the author's value
        if self.limit_s is None:
            return await scenario
        async with asyncio.timeout(self.limit_s):
            return await scenario


class _Counting(_Watch):
    """Counts the places, and tells those apart that leave another world behind.

    Attributes:
        awaits: All places.
        places: Those that leave another world than the one before, or at which a function of the author runs: it may
            do anything between two awaits.
        seconds: Virtual seconds of the scenario.
    """

    def __init__(self, *, thorough: bool) -> None:
        super().__init__()
        self._thorough = thorough
        self.awaits = 0
        self.seconds = 0.0
        self.places: list[_Place] = []

    def on_step(self, process: Process) -> None:
        """Count a place; what the last step left as it was, the next owner finds as it was."""
        self.awaits += 1
        world, steps = self._look()
        if self._thorough or steps == 1 or self._engine.journal.running_in(process):
            self.places.append(_Place(world, steps, self._words(process)))

    async def limited(self, scenario: Awaitable[Any]) -> Any:  # noqa: ANN401 - the author's value
        """Note how long it takes."""
        loop = asyncio.get_running_loop()
        try:
            return await super().limited(scenario)
        finally:
            self.seconds = loop.time()


class _Killing(_Watch):
    """Kills the process at a place."""

    def __init__(self, place: _Place, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._place = place

    def on_step(self, process: Process) -> None:
        """Kill it there."""
        if self._look() != (self._place.world, self._place.steps) or self._node is None:
            return
        self._played.place = self._words(process)
        process.on_step = None
        self._engine.kill(self._node)
