"""``runfold events``: who reads cut texts is told that they are, and where the whole ones are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runfold.cli import main, reading
from runfold.client import Client
from runfold.core.payload import inline_json
from tests.unit.client.world import RUN, World, started

LONG = "x" * 500


@pytest.mark.parametrize(
    ("question", "options", "told"),
    [
        (LONG, [], "long texts are cut; `--json` shows them whole\n"),
        ("What is new?", [], ""),
        (LONG, ["--json"], ""),
    ],
)
def test_the_last_line_says_that_something_was_cut(
    question: str,
    options: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On stderr, since stdout is for what was asked; with --json nothing is cut."""

    async def run(body: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        world = World()
        world.write(started(world.claim(), question=inline_json(question)))
        await body(world.client)

    def with_client(_: object, body: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(run(body))

    monkeypatch.setattr(reading, "with_client", with_client)
    assert main(["events", RUN, *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == told
    assert (question in shown.out) == (not told)
