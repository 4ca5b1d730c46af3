"""Random histories: many runs, zombies, new owners, compactors that die at any commit, damaged snapshots, time.

Whatever happens, a take-over finds every run exactly as its valid events fold, and the rows say the same.
"""

import random
from dataclasses import replace

import pytest

from runfold.core.decisions import status as status_of
from runfold.core.state import Status
from tests.unit.compactor.world import World, until
from tests.unit.core.building import Run


class _History:
    """One random history; the same seed gives the same one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.world = World()
        self.world.claim()
        self.runs: dict[str, Run] = {}

    def happen(self) -> None:
        """Let one thing happen to the log, the clock or the store."""
        choices = (self.begin, self.go_on, self.go_on, self.go_on, self.gate, self.approve, self.end)
        self.random.choice((*choices, self.claim, self.zombie, self.lose, self.wait, self.damage))()

    def pick(self, *statuses: Status) -> Run | None:
        """Choose a run in one of these states, whose turn is closed if it is running."""
        fitting = [
            run
            for run in self.runs.values()
            if status_of(run.state) in statuses
            and (run.state.waits or (not run.state.turn and not run.state.model_call))
        ]
        run = self.random.choice(fitting) if fitting else None
        if run is not None:
            run.epoch = self.world.epoch
        return run

    def begin(self) -> None:
        run_id = f"run-{len(self.runs)}"
        self.runs[run_id] = self.world.begin(run_id)

    def go_on(self) -> None:
        run = self.pick(Status.RUNNING)
        if run is not None:
            self.world.steps(run, self.random.randint(1, 4))

    def gate(self) -> None:
        run = self.pick(Status.RUNNING)
        if run is not None:
            known = len(run.events)
            run.turn("g")
            run.do(run.next.gate("g"))
            self.world.write(run, known)

    def approve(self) -> None:
        run = self.pick(Status.WAITING)
        if run is not None:
            known = len(run.events)
            run.do(run.next.resume(next(iter(run.state.waits)), "approved"))
            run.do(run.next.request("g"))
            run.do(run.next.result("g"))
            self.world.write(run, known)

    def end(self) -> None:
        run = self.pick(Status.RUNNING)
        if run is not None:
            known = len(run.events)
            run.do(run.next.complete())
            self.world.write(run, known)

    def claim(self) -> None:
        self.world.claim()

    def zombie(self) -> None:
        """An owner that is over writes what would have been a run's next event."""
        run = self.pick(Status.RUNNING)
        if run is not None and self.world.epoch > 0:
            self.world.append(replace(run.next.complete(), epoch=self.world.epoch - 1))

    def lose(self) -> None:
        """The next event of a run is lost, and what was pipelined behind it is not."""
        run = self.pick(Status.RUNNING)
        if run is not None:
            self.world.append(replace(run.next.complete(), seq=run.state.seq + 2))

    def wait(self) -> None:
        self.world.clock.seconds += 31

    def damage(self) -> None:
        """Flip a bit of the newest snapshot of a run that has two."""
        twice = [rows for rows in self.world.database.snapshots.values() if len(rows) > 1]
        if twice:
            rows = self.random.choice(twice)
            newest = max(rows)
            older = min(rows)
            if rows[older].digest != "damaged":
                rows[newest] = replace(rows[newest], digest="damaged")

    async def check(self) -> None:
        """Compare what a take-over finds, and what the rows say, with what was appended."""
        replay = await self.world.restored()
        for run_id, run in self.runs.items():
            row = await self.world.store.run(run_id)
            assert row is not None
            assert (row.seq, row.status, row.parked) == (run.state.seq, status_of(run.state), None)
            if run_id not in replay.runs:
                assert row.status is not Status.RUNNING
                await replay.adopt((await self.world.store.load_runs([run_id])).values(), self.world.end)
            assert replay.runs[run_id].state == run.state
            waits = {wait.wait_id for wait in await self.world.store.waits(run_id)}
            assert waits == set(run.state.waits)
        assert self.world.database.open_calls == {}


@pytest.mark.parametrize("seed", range(25))
async def test_a_take_over_finds_every_run_as_its_valid_events_fold(seed: int) -> None:
    """The seed is in the test's name and repeats the history."""
    history = _History(seed)
    world = history.world
    for _ in range(8):
        every, batch = history.random.randint(2, 12), history.random.randint(1, 40)
        async with world.compacting(snapshot_every=every, batch_records=batch) as status:
            for _ in range(history.random.randint(1, 25)):
                history.happen()
                if history.random.random() < 0.5:
                    await until(lambda: status.applied == world.end)
            if history.random.random() < 0.8:
                await until(lambda: status.applied == world.end)
    await world.compact(commits=0)
    await history.check()
