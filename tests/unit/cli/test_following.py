"""``start --wait`` says what a run waits for, once, and how it ended."""

import json

import pytest

from runfold.cli import following
from runfold.cli.running import CommandError
from runfold.core.events import CancelRequested, Interrupted, Resumed, RunCancelled, WaitReason
from runfold.core.payload import inline_json
from runfold.ports.store import StoreUnavailable
from tests.unit.client.world import RUN, World, completed, started


def stopped(epoch: int, seq: int) -> Interrupted:
    return Interrupted(
        run_id=RUN,
        seq=seq,
        epoch=epoch,
        at=1,
        step=1,
        wait_id=f"{RUN}:1",
        reason=WaitReason.ERROR,
        detail=inline_json({"error": "the model said no"}),
    )


def resumed(epoch: int, seq: int) -> Resumed:
    return Resumed(run_id=RUN, seq=seq, epoch=epoch, at=1, step=1, wait_id=f"{RUN}:1", reason=WaitReason.ERROR)


async def test_a_wait_is_told_once_with_what_lifts_it_and_the_timeout_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "QUIET_S", 0.01)
    world = World()
    epoch = world.claim()
    world.write(started(epoch))
    world.write(stopped(epoch, 1))
    with pytest.raises(CommandError) as ended:
        await following.wait_for_end(world.client, RUN, 0.5)
    assert ended.value.code == 1
    assert "run run-8c1 has not ended within 0.5 s, and goes on: it waits for error (run-8c1:1)" in str(ended.value)
    told = capsys.readouterr()
    assert told.err.count("run run-8c1 waits for error (run-8c1:1): the model said no\n") == 1
    assert told.err.count("  next: mend the cause, then `runfold resume run-8c1 --by NAME`\n") == 1
    assert told.err.count("still waiting for its end; Ctrl-C does no harm") == 1
    assert not told.out


async def test_a_wait_of_the_past_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    epoch = world.claim()
    world.write(started(epoch))
    world.write(stopped(epoch, 1))
    world.write(resumed(epoch, 2))
    world.write(completed(epoch, 3))
    await following.wait_for_end(world.client, RUN, None)
    told = capsys.readouterr()
    assert json.loads(told.out) == "done"
    assert "waits for" not in told.err


async def test_a_cancelled_run_says_why() -> None:
    world = World()
    epoch = world.claim()
    world.write(started(epoch))
    world.write(CancelRequested(run_id=RUN, seq=1, epoch=epoch, at=1, reason="too dear", requested_by="ops"))
    world.write(RunCancelled(run_id=RUN, seq=2, epoch=epoch, at=1, reason="too dear", open_keys=()))
    with pytest.raises(CommandError, match="run run-8c1 ended as cancelled: too dear"):
        await following.wait_for_end(world.client, RUN, None)


async def test_a_run_that_nobody_starts_is_waited_for_no_longer_than_asked() -> None:
    world = World()
    world.claim()
    with pytest.raises(CommandError, match="no executor has started it"):
        await following.wait_for_end(world.client, RUN, 0.05)


async def test_what_cannot_be_reached_is_raised_as_it_is() -> None:
    """A group of exceptions would be no line for a person."""
    world = World()
    world.database.available = False
    with pytest.raises(StoreUnavailable):
        await following.wait_for_end(world.client, RUN, None)
