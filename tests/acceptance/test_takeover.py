"""Partitions that change hands under runs that step all the time: scale-out, clean hand-over, kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from bench.stepping import LogWatch, Metronome, await_steps, gap, longest_pause, now, settle, start_runs, wait_until
from demo.installation import Installation
from demo.processes import Command, Service, Services
from demo.watching import await_state
from devstack import Stack
from runfold.core.fence import Kind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

EXECUTOR: Final[Command] = "runfold-step-executor"
PARTITIONS: Final = 4
SESSION_S: Final = 6.0
_NAP_S: Final = 6.0
_NAP_REQUESTED: Final = 3
"""`seq` of the request of the long call: run started, model called, model responded, and it."""
_FAR_BELOW_A_NAP_S: Final = 4.0
_AFTER_SESSION_S: Final = 5.0
"""A rebalance, a claim and a restore take a tenth of it on a quiet machine."""
# The devstack's broker has a session of 6 s for the next generation of the protocol as well.
PROTOCOLS: Final = {
    "classic": f"session.timeout.ms={SESSION_S * 1000:.0f}\n",
    "consumer": "group.protocol=consumer\n",
}


@dataclass
class Fleet:
    """Executors of one installation; as many as a test wants, whatever the one before has left."""

    installation: Installation
    services: Services
    watch: LogWatch
    executors: list[Service] = field(default_factory=list)
    _started: int = 0

    def start(self) -> Service:
        """Start one more."""
        self._started += 1
        self.executors.append(self.services.start(EXECUTOR, f"executor-{self._started}"))
        return self.executors[-1]

    def make(self, count: int) -> None:
        """Have so many, each with its fair share."""
        while len(self.executors) > count:
            self.services.stop(self.executors.pop())
        while len(self.executors) < count:
            self.start()
        self.services.await_ready(*self.executors)
        settle(self.services, self.watch, {executor.pid for executor in self.executors})

    def start_runs(self, partitions: set[int], agent: str) -> list[str]:
        """Start a run in each of some partitions and wait until each has a request in the log."""
        run_ids = start_runs(self.installation, partitions, PARTITIONS, agent)
        self.await_(lambda: set(run_ids) <= self._requested(), "a request of every run")
        return run_ids

    def await_(self, predicate: Callable[[], bool], what: str) -> None:
        """Wait for a state."""
        wait_until(predicate, self.services, what)

    def await_status(self, run_ids: list[str], status: str) -> None:
        """Wait until Postgres knows all of some runs to be in a state."""

        def ask() -> bool | None:
            rows = {row["run_id"]: row["status"] for row in self.installation.read("list", "--limit", "1000")}
            return True if all(rows.get(run_id) == status for run_id in run_ids) else None

        await_state(self.services, f"{status}: {', '.join(run_ids)}", ask)

    def attempts(self, run_id: str) -> list[int]:
        """Give the attempts of every request of a run."""
        return [event["attempt"] for event in self.installation.events(run_id) if "attempt" in event]

    def _requested(self) -> set[str | None]:
        return {
            entry.run_id
            for partition in range(PARTITIONS)
            for entry in self.watch.entries(partition)
            if entry.kind is Kind.EVENT and entry.seq > 1
        }


@pytest.fixture(scope="module")
def fleet_of(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Fleet]]:
    """Give the fleet that speaks a protocol; there is one of each for all tests of this module."""
    fleets: dict[str, Fleet] = {}
    with ExitStack() as opened:

        def make(protocol: str) -> Fleet:
            if protocol not in fleets:
                folder: Path = tmp_path_factory.mktemp(protocol)
                installation = Installation.at(
                    stack.environment(),
                    folder,
                    app="bench.stepping_app:app",
                    partitions=PARTITIONS,
                    kafka=PROTOCOLS[protocol],
                )
                opened.callback(installation.remove)
                installation.runfold("setup")
                watch = opened.enter_context(LogWatch(installation, PARTITIONS))
                services = opened.enter_context(Services(installation.environment, folder / "logs"))
                services.await_ready(services.start("runfold-snapshot-compactor", "compactor"))
                fleets[protocol] = Fleet(installation, services, watch)
            return fleets[protocol]

        yield make


def test_a_scale_out_does_not_disturb_the_partitions_that_stay(fleet_of: Callable[[str], Fleet]) -> None:
    """Their runs pause for no more than 0.3 s (beside what the machine itself stood still), and nobody claims them."""
    fleet = fleet_of("classic")
    fleet.make(1)
    first = fleet.executors[0]
    fleet.start_runs(set(range(PARTITIONS)), "stepper")
    await_steps(fleet.services, fleet.watch, now())
    claims = {partition: fleet.watch.claims(partition) for partition in range(PARTITIONS)}
    with Metronome() as metronome:
        began = now()
        joiner = fleet.start()
        fleet.await_(lambda: len(fleet.watch.of(joiner.pid)) == PARTITIONS // 2, "the joiner's share")
        kept = fleet.watch.of(first.pid)
        fleet.await_(lambda: fleet.watch.stepping(now() - 1.0) >= kept, "steps in what stayed")
        pauses = {each: longest_pause(fleet.watch.entries(each), began, now()) for each in kept}
    assert len(kept) == PARTITIONS // 2
    assert {each: fleet.watch.claims(each) for each in kept} == {each: claims[each] for each in kept}
    assert max(pauses.values()) < 0.3 + metronome.worst_s, f"{pauses}, the machine itself: {metronome.worst_s}"


def test_a_long_call_holds_up_its_own_partition_only(fleet_of: Callable[[str], Fleet]) -> None:
    """SIGTERM amid a call of 6 s: the other partitions move at once, that one when the call has been recorded."""
    fleet = fleet_of("classic")
    fleet.make(2)
    leaver = fleet.executors.pop(0)
    slow, *quick = sorted(fleet.watch.of(leaver.pid))
    (nap,) = fleet.start_runs({slow}, "napper")
    fleet.start_runs(set(range(PARTITIONS)) - {slow}, "stepper")
    fleet.await_(lambda: fleet.watch.seq_of(nap) >= _NAP_REQUESTED, "the request of the long call")
    told = now()
    seconds = fleet.services.stop(leaver)
    fleet.await_(
        lambda: all(gap(fleet.watch.entries(each), told) for each in [slow, *quick]), "the next owner's events"
    )
    standstill = [
        after - before for before, after in (gap(fleet.watch.entries(each), told) or (0, 99) for each in quick)
    ]
    assert max(standstill) < _FAR_BELOW_A_NAP_S
    entries = fleet.watch.entries(slow)
    moved = next(at for at, entry in enumerate(entries) if entry.claimed_by is not None and entry.at > told)
    assert entries[moved - 1].run_id == nap
    assert entries[moved - 1].seq == _NAP_REQUESTED + 1
    assert seconds < _NAP_S + _FAR_BELOW_A_NAP_S
    fleet.await_status([nap], "completed")
    assert set(fleet.attempts(nap)) == {1}


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_the_runs_of_a_killed_executor_go_on_elsewhere(fleet_of: Callable[[str], Fleet], protocol: str) -> None:
    """After the session and a moment; and they complete."""
    fleet = fleet_of(protocol)
    fleet.make(2)
    victim = fleet.executors.pop(0)
    moving = fleet.watch.of(victim.pid)
    run_ids = fleet.start_runs(set(range(PARTITIONS)), "brief")
    killed = now()
    fleet.services.kill(victim)
    fleet.await_(lambda: all(gap(fleet.watch.entries(each), killed) for each in moving), "the next owner's events")
    took = [after - killed for _, after in (gap(fleet.watch.entries(each), killed) or (0, 0) for each in moving)]
    assert max(took) < SESSION_S + _AFTER_SESSION_S
    fleet.await_status(run_ids, "completed")
