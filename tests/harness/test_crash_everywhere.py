"""``crash_everywhere``: what good agents stand, and what is found of each kind of bad one."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from runfold import ABSENT, Absent, App, Recovery, ToolContext, tool
from runfold.core.decisions import Fail, Finish, Plan, tool_calling
from runfold.core.state import State
from runfold.testing import CrashFindingsError, Harness, Report, crash_everywhere, run
from tests.harness.agents import World, app_of, everything, flying


async def approved(harness: Harness) -> str:
    """Run the app that uses everything, and look at every effect."""
    run_id = await harness.start("agent", "go")
    await harness.approve(run_id)
    output: str = await harness.result(run_id)
    assert harness.world.mails == {"run-1:4": "ann", "run-1:5": "news"}
    assert harness.world.payments == [("run-1:8", 3)]
    return output


async def finished(harness: Harness) -> str:
    """Run an app."""
    output: str = await harness.result(await harness.start("agent", "go"))
    return output


def test_a_good_agent_stands_every_crash() -> None:
    """All recovery classes, a gate, a thread: no finding; and a report that says how much was tried."""
    report = crash_everywhere(approved, everything, world=World)
    assert report.ok, str(report)
    report.raise_for_findings()
    assert report.awaits > report.tried > 30
    assert str(report) == f"crash_everywhere: killed at {report.tried} of {report.awaits} awaits: all well"


def test_it_repeats_itself() -> None:
    """Two searches find the same, at the same places."""
    first, second = (crash_everywhere(finished, _booking, world=_Desk, every=2) for _ in range(2))
    assert (first.findings, first.tried, first.awaits) == (second.findings, second.tried, second.awaits)


def test_places_left_out_find_nothing_else() -> None:
    """Thorough or not: the same findings. Awaits between which nothing was sent, written or called are one place."""
    short = crash_everywhere(finished, _booking, world=_Desk)
    thorough = crash_everywhere(finished, _booking, world=_Desk, thorough=True)
    assert thorough.tried == thorough.awaits == short.awaits > short.tried
    assert [(one.kind, one.what, set(one.places)) for one in thorough.findings] == [
        (one.kind, one.what, set(one.places)) for one in short.findings
    ]


def test_it_may_be_thinned() -> None:
    """``every`` and ``limit`` bound how long it takes."""
    assert crash_everywhere(finished, _booking, world=_Desk, limit=3).tried == 3
    whole = crash_everywhere(finished, _booking, world=_Desk).tried
    assert crash_everywhere(finished, _booking, world=_Desk, every=4).tried == -(-whole // 4)


async def test_it_works_in_an_async_test_too() -> None:
    """It has a loop of its own; the report may be awaited."""
    report = crash_everywhere(finished, _booking, world=_Desk, limit=2)
    assert await report is report


def test_a_harness_that_is_not_entered_can_be_asked_too() -> None:
    """The method is the function, with what the harness is made of."""
    assert Harness(_booking, world=_Desk).crash_everywhere(finished, limit=2).tried == 2


def test_progress_is_told() -> None:
    """To whom asks for it, after each place."""
    told: list[str] = []
    crash_everywhere(finished, _booking, world=_Desk, limit=2, progress=told.append)
    assert [line.split(",")[0] for line in told] == [f"crash_everywhere: {n} of 2 places" for n in (1, 2)]


def test_a_scenario_that_fails_by_itself_is_no_finding() -> None:
    """It is raised, with a word that no crash is to blame."""

    async def broken(harness: Harness) -> None:
        raise ZeroDivisionError(type(harness).__name__)

    with pytest.raises(ZeroDivisionError) as raised:
        crash_everywhere(broken, _booking, world=_Desk)
    assert raised.value.__notes__ == ["crash_everywhere: the scenario fails without any crash"]


def test_two_days_of_waiting_are_not_two_days_of_crashes() -> None:
    """While nothing happens, one crash stands for all."""

    async def waiting(harness: Harness) -> str:
        run_id = await harness.start("agent", "go")
        await harness.waiting(run_id)
        await harness.advance(days=2)
        await harness.approve(run_id)
        output: str = await harness.result(run_id)
        return output

    report = crash_everywhere(waiting, everything, world=World, limit=8)
    assert report.ok, str(report)
    without = crash_everywhere(approved, everything, world=World, limit=1)
    assert report.awaits > without.awaits + 50
    assert report.tried == 8


async def _paid_after_days(harness: Harness) -> str:
    run_id = await harness.start("agent", "go")
    await harness.advance(days=2)
    await harness.approve(run_id)
    output: str = await harness.result(run_id)
    assert harness.world.total == 5, f"paid {harness.world.total}"
    return output


def _paying_too_late(desk: _Desk) -> App:
    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def pay(ctx: ToolContext[None]) -> str:
        """Take note of the key first, and pay later."""
        if ctx.idempotency_key not in desk.tickets:
            desk.tickets[ctx.idempotency_key] = "paid"
            await asyncio.sleep(0.5)
            desk.total += 5
        return "paid"

    return app_of([pay], [("pay", {}), "ok"])


def test_days_of_waiting_hide_nothing() -> None:
    """After a stride too the process dies at each await of a tool: places are the same in every play."""
    report = crash_everywhere(_paid_after_days, _paying_too_late, world=_Desk)
    (finding,) = report.findings
    assert finding.kind == "scenario"
    assert "paid 0" in finding.what
    assert all("while pay (step 3, attempt 1) was running" in place for place in finding.places)
    assert len(finding.places) >= 3


def test_one_more_timer_changes_nothing() -> None:
    """Timers that ring at once ring in the order in which they were set, whatever else is in asyncio's heap."""

    def rung(others: int) -> list[int]:
        async def play() -> list[int]:
            loop, heard = asyncio.get_running_loop(), list[int]()
            for other in range(others):
                loop.call_at(7.0 + other % 3, lambda: None)
            for number in range(40):
                loop.call_at(9.0, heard.append, number)
            await asyncio.sleep(20)
            return heard

        return run(play())

    assert rung(0) == rung(1) == rung(5) == list(range(40))


def test_a_place_that_is_not_reached_is_no_place_that_was_tried() -> None:
    """A tool that awaits less when the process is to die: the report says so, and does not vouch for these places."""
    executions = itertools.count()

    def hasty(_: _Desk) -> App:
        @tool(recovery=Recovery.RERUN)
        async def read(ctx: ToolContext[None]) -> str:
            """Read in many pieces, in the two plays without a crash."""
            for _ in range(12 if next(executions) < 2 else 0):
                await asyncio.sleep(0)
            return ctx.run_id

        return app_of([read], [("read", {}), "ok"])

    told: list[str] = []
    report = crash_everywhere(finished, hasty, world=_Desk, progress=told.append)
    (finding,) = report.findings
    assert finding.kind == "unreached"
    missed, places = len(told) - report.tried, len(told)
    assert missed >= 10
    assert f"{missed} of {places} places" in finding.what
    assert "while read (step 2, attempt 1) was running" in finding.what
    with pytest.raises(CrashFindingsError, match="not every place was tried"):
        report.raise_for_findings()


def test_threads_end_at_the_same_step_in_every_play() -> None:
    """Real work in threads: two searches count the same awaits, and reach every place."""

    def threads(_: _Desk) -> App:
        @tool(recovery=Recovery.RERUN)
        async def read(ctx: ToolContext[None]) -> str:
            """Read in a thread."""
            return await asyncio.to_thread(str, ctx.run_id)

        return app_of([read], [("read", {}), "ok"])

    first, second = (crash_everywhere(finished, threads, world=_Desk, every=3) for _ in range(2))
    assert first.ok, str(first)
    assert first.awaits == second.awaits


def test_an_app_without_a_world_is_shared() -> None:
    """The scenario resets its fakes by itself."""
    world = World()

    async def scenario(harness: Harness) -> None:
        world.mails.clear()
        world.payments.clear()
        run_id = await harness.start("agent", "go")
        await harness.approve(run_id)
        await harness.result(run_id)
        assert len(world.payments) == 1

    assert crash_everywhere(scenario, everything(world), limit=5).ok


# --- bad agents --------------------------------------------------------------------------------------------------


@dataclass
class _Desk:
    """A downstream that keeps no promises."""

    numbers: Any = field(default_factory=lambda: itertools.count(1))
    total: int = 0
    tickets: dict[str, str] = field(default_factory=dict)


async def charged_once(harness: Harness) -> None:
    """Look whether five were charged."""
    await finished(harness)
    assert harness.world.total == 5, f"charged {harness.world.total}"


def _charging(desk: _Desk) -> App:
    @tool(recovery=Recovery.KEYED)
    async def charge(ctx: ToolContext[None]) -> str:
        """Charge, whatever the key is."""
        desk.total += 5
        return f"charged {ctx.run_id}"

    return app_of([charge], [("charge", {}), "ok"])


def _charging_slowly(desk: _Desk) -> App:
    @tool(recovery=Recovery.KEYED)
    async def charge(ctx: ToolContext[None]) -> str:
        """Charge first, and take note of the key later."""
        if ctx.idempotency_key not in desk.tickets:
            desk.total += 5
            await asyncio.sleep(0.1)
            desk.tickets[ctx.idempotency_key] = "charged"
        return "charged"

    return app_of([charge], [("charge", {}), "ok"])


def _booking(desk: _Desk) -> App:
    @tool(recovery=Recovery.KEYED)
    async def book(ctx: ToolContext[None]) -> str:
        """Book, and give another number each time."""
        return f"B-{next(desk.numbers)} for {ctx.run_id}"

    return app_of([book], [("book", {}), "ok"])


def _reading(desk: _Desk) -> App:
    @tool(recovery=Recovery.RERUN)
    async def read(ctx: ToolContext[None]) -> str:
        """Do something, and say that it only reads."""
        return f"{next(desk.numbers)} for {ctx.run_id}"

    return app_of([read], [("read", {}), "ok"])


def _defaulting(_: _Desk) -> App:
    @tool(recovery=Recovery.KEYED)
    async def note(ctx: ToolContext[None], ref: str = uuid.uuid4().hex) -> str:
        """Note something under a reference that every process makes up."""
        return f"noted for {ctx.run_id}: {ref}"

    return app_of([note], [("note", {}), "ok"])


def _by_the_clock(_: _Desk) -> App:
    def plan(state: State) -> Plan:
        return Finish() if datetime.now(UTC).year < 2000 else tool_calling(state)

    return app_of([], ["ok"], planner=plan)


def _by_memory(_: _Desk) -> App:
    asked = itertools.count()

    def plan(state: State) -> Plan:
        return tool_calling(state) if next(asked) < 3 else Fail("asked too often")

    @tool(recovery=Recovery.RERUN)
    async def look(ctx: ToolContext[None]) -> str:
        """Look."""
        return ctx.run_id

    return app_of([look], [("look", {}), "ok"], planner=plan)


def _forgetting(desk: _Desk) -> App:
    @tool(recovery=Recovery.LOOKUP, timeout=5.0)
    async def ticket(ctx: ToolContext[None], title: str) -> str:
        """Open a ticket."""
        desk.tickets[ctx.idempotency_key] = title
        return "T-1"

    @ticket.lookup
    async def find(ctx: ToolContext[None], title: str) -> str | Absent:
        return desk.tickets.get(title, ABSENT)  # not by the key

    return app_of([ticket], [("ticket", {"title": "x"}), "ok"])


def _confusing(desk: _Desk) -> App:
    @tool(recovery=Recovery.LOOKUP, timeout=5.0)
    async def ticket(ctx: ToolContext[None], title: str) -> str:
        """Open a ticket."""
        desk.tickets[ctx.idempotency_key] = title
        return "T-1"

    @ticket.lookup
    async def find(ctx: ToolContext[None], title: str) -> str | Absent:
        return desk.tickets.get(ctx.idempotency_key, ABSENT)  # the title, not the ticket's id

    return app_of([ticket], [("ticket", {"title": "x"}), "ok"])


def _remembering(_: _Desk) -> App:
    kept: dict[str, str] = {}

    @tool(recovery=Recovery.RERUN)
    async def read(ctx: ToolContext[None]) -> str:
        """Read a page, and keep it in the process."""
        kept[ctx.run_id] = "page"
        return "read"

    @tool(recovery=Recovery.RERUN, retries=0)
    async def quote(ctx: ToolContext[None]) -> str:
        """Quote the page that was read."""
        return kept[ctx.run_id]

    def say(messages: list[Any]) -> str:
        return str(messages[-1].parts[0].content)

    return app_of([read, quote], [("read", {}), ("quote", {}), say])


@pytest.mark.parametrize(
    ("app", "scenario", "kind", "said"),
    [
        (_charging, charged_once, "scenario", ["AssertionError at test_crash_everywhere.py:", "charged 10"]),
        (_charging_slowly, charged_once, "scenario", ["charged 10", "while charge (step 2, attempt 1) was running"]),
        (_booking, finished, "repeated", ["keyed tool book (step 2 of run-1)", "'B-2 for run-1'", "idempotency_key"]),
        (_reading, finished, "repeated", ["rerun tool read (step 2 of run-1)", "does it only read?"]),
        (_defaulting, finished, "definition", ["tool note of agent 'agent'", "version_mismatch after every restart"]),
        (_by_the_clock, finished, "planner", ["plan reads the clock (datetime.now at test_crash_everywhere.py:"]),
        (_by_memory, finished, "planner", ["plan decides", "asked too often", "same state"]),
        (_forgetting, finished, "lookup", ["says ABSENT, but attempt 1 had returned 'T-1'"]),
        (_confusing, finished, "lookup", ["gives 'x', but the call had returned 'T-1'"]),
        (
            _remembering,
            finished,
            "result",
            ["\"KeyError: 'run-1'\" instead of 'page'", "after tool_returned of step 2"],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_"),
)
def test_what_is_wrong_is_found_and_named(
    app: Callable[[_Desk], App], scenario: Callable[[Harness], Any], kind: str, said: list[str]
) -> None:
    """Each kind of bad agent: the first finding says what, of which tool, and where the process died."""
    report = crash_everywhere(scenario, app, world=_Desk)
    first = report.findings[0]
    assert first.kind == kind, str(report)
    for words in said:
        assert words in str(first)
    with pytest.raises(CrashFindingsError, match="finding"):
        report.raise_for_findings()


def test_what_changes_by_itself_may_be_named() -> None:
    """A tool that reads a changing world is no finding where the author says so."""
    assert crash_everywhere(finished, _reading, world=_Desk, changing={"read"}).ok


def test_where_a_person_would_decide_is_told_apart() -> None:
    """A MANUAL tool that may have happened: no defect, unless it is asked for."""
    report = crash_everywhere(finished, flying, world=World)
    assert report.ok
    (doubt,) = report.decisions_of_people
    assert "whether fly (step 2) has happened" in str(doubt)
    assert len(doubt.places) == 2
    assert "a person would have to decide" in str(report)
    assert not crash_everywhere(finished, flying, world=World, fail_on_indeterminate=True, every=4).ok


def test_fakes_that_are_shared_by_all_runs_are_told_from_crashes() -> None:
    """Two runs without a crash that differ: said once, and not held against every crash."""
    numbers = itertools.count()

    async def scenario(harness: Harness) -> int:
        await finished(harness)
        return next(numbers)

    report: Report = crash_everywhere(scenario, _by_key, world=_Desk, limit=4)
    assert [one.kind for one in report.findings] == ["unstable"]


def _by_key(desk: _Desk) -> App:
    @tool(recovery=Recovery.KEYED)
    async def book(ctx: ToolContext[None]) -> str:
        """Book under the key."""
        return desk.tickets.setdefault(ctx.idempotency_key, "booked")

    return app_of([book], [("book", {}), "ok"])
