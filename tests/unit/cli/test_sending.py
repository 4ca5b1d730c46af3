"""What a command that sends an input prints once it knows what became of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from runfold.adapters.kafka.errors import KafkaUnavailable
from runfold.cli import main, writing
from runfold.cli.arguments import typed_approval_id
from runfold.cli.running import CommandError
from runfold.cli.writing import refusal, report_started, still_open
from runfold.client import Client, RunNotFoundError, Settled, Submitted
from runfold.core.events import Cause, Settlement, WaitReason
from runfold.core.payload import inline_json
from runfold.ports.store import StoreUnavailable
from tests.unit.cli.test_following import stopped
from tests.unit.client.world import RUN, World, settled, started


async def begun(world: World, outcome: Settlement | None) -> Submitted:
    """Send a start, and let an executor settle it."""
    submitted = await world.client.start("research", "What is new?", run_id=RUN)
    if outcome is not None:
        world.write(settled(world.claim(), submitted.published, outcome, "run_exists"))
    return submitted


@pytest.mark.parametrize("outcome", [None, Settlement.DUPLICATE])
async def test_a_start_that_was_not_refused_prints_the_id(
    outcome: Settlement | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that is only queued: it will be handled."""
    world = World()
    await report_started(world.client, await begun(world, outcome), 0.2)
    assert capsys.readouterr().out == f"{RUN}\n"


async def test_a_refused_start_prints_no_id(capsys: pytest.CaptureFixture[str]) -> None:
    """A script would take it for a run that it had started."""
    world = World()
    submitted = await begun(world, Settlement.DEAD)
    with pytest.raises(CommandError, match="run_exists"):
        await report_started(world.client, submitted, 5.0)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("again", [False, True])
async def test_a_start_of_an_agent_that_nobody_knows_says_so(
    *, again: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be misspelt, and the run would wait for ever; who starts it again, since nothing happens, is told as well.

    What else it waits for comes in its own time.
    """
    world = World()
    submitted = await world.client.start("research", "What is new?", run_id=RUN)
    epoch = world.claim()
    published = submitted.published
    world.write(started(epoch, cause=Cause(published.topic, published.partition, published.offset)))
    detail = inline_json({"agent": "reserch"})
    world.write(replace(stopped(epoch, 1), reason=WaitReason.UNKNOWN_AGENT, detail=detail))
    if again:
        submitted = await world.client.start("research", "What is new?", run_id=RUN)
        world.write(settled(epoch, submitted.published, Settlement.DUPLICATE))
    await report_started(world.client, submitted, 5.0)
    said = capsys.readouterr()
    assert said.out == f"{RUN}\n"
    assert ("no effect" if again else "accepted: run_started (seq 0)") in said.err
    assert "waits for unknown_agent (run-8c1:1): no executor knows agent 'reserch'" in said.err
    assert "start an executor whose app has this agent" in said.err


@pytest.mark.parametrize("error", [KafkaUnavailable("away"), StoreUnavailable("away"), RunNotFoundError(RUN)])
async def test_a_start_is_accepted_whether_its_waits_can_be_read_or_not(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def show(_: Client, __: str) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(Client, "show", show)
    world = World()
    await report_started(world.client, await begun(world, Settlement.DUPLICATE), 5.0)
    assert capsys.readouterr().out == f"{RUN}\n"


async def test_a_start_that_is_broken_off_prints_the_id(capsys: pytest.CaptureFixture[str]) -> None:
    """It is durable, and its id may be a made one that nobody else knows."""
    world = World()
    submitted = await begun(world, None)
    waiting = asyncio.create_task(report_started(world.client, submitted, 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert capsys.readouterr().out == f"{RUN}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("5", "m1:5"), ("005", "m1:5"), ("m1:5", "m1:5"), ("m2:5", "m2:5"), ("²", "²")]
)
def test_a_gate_may_be_named_by_its_step(typed: str, meant: str) -> None:
    assert typed_approval_id("m1", typed) == meant


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_a_decision_by_step_is_sent_for_the_gate(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare step would be refused by the owner, and stand among the dead inputs for good."""
    world = World()

    def with_client(_: object, body: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(body(world.client))

    monkeypatch.setattr(writing, "with_client", with_client)
    assert main([command, RUN, "5", "--by", "dana", "--timeout", "0"]) == 0
    [record] = world.broker.slice(world.topics.approvals, world.partition, 0, 1)
    assert json.loads(record.value or b"")["approval_id"] == f"{RUN}:5"


async def test_a_refusal_names_what_is_open_instead() -> None:
    """As the log has it, though Postgres does not know it yet."""
    world = World()
    epoch = world.claim()
    world.write(started(epoch))
    world.write(stopped(epoch, 1))
    waits = await still_open(world.client, RUN)
    said = refusal(Settled("dead", reason="not_open", detail="approval 'x' is not open"), waits)
    assert said == "refused (not_open): approval 'x' is not open; open: run-8c1:1 (error)"


async def test_a_refusal_is_said_though_postgres_is_away() -> None:
    """The hint is left out; the refusal is what matters."""
    world = World()
    world.database.available = False
    assert await still_open(world.client, RUN) == []
    assert refusal(Settled("dead", reason="not_open"), ()) == "refused (not_open)"
