"""The agent's tests: no Kafka, no Postgres, no waiting. In the folder of this file: ``python -m pytest``."""

# ruff: noqa: S101 - a test asserts
from __future__ import annotations

import json
from pathlib import Path

import app as example  # type: ignore[import-not-found]  # found in this folder, which only pytest knows
import pytest

from runfold.testing import Harness, crash_everywhere, run


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the ticket system a file of its own."""
    path = tmp_path / "book.json"
    monkeypatch.setattr(example, "BOOK", path)
    return path


async def complaint(harness: Harness) -> str:
    """A customer complains, and somebody approves the refund two days later: one ticket, one refund."""
    example.BOOK.unlink(missing_ok=True)
    run_id = await harness.start("support", "The invoice of May is wrong")
    (gate,) = await harness.waiting(run_id)
    assert gate["arguments"] == {"order": "2026-05-17", "amount": "12.50"}
    await harness.advance(days=2)
    await harness.approve(run_id, by="you")
    output: str = await harness.result(run_id)
    assert json.loads(example.BOOK.read_text()) == {
        f"{run_id}:2": {"ticket": "The invoice of May is wrong", "priority": 3},
        f"{run_id}:4": {"refund": "2026-05-17", "amount": "12.50"},
    }
    return output


def test_a_complaint_is_answered() -> None:
    """The scenario, once, on virtual time."""

    async def play() -> None:
        async with Harness(example.app) as harness:
            assert await complaint(harness) == "I opened a ticket, and your refund is on its way."

    run(play())


def test_a_refund_is_paid_once_though_its_process_dies() -> None:
    """Killed between the payment and its record: the next process pays again, under the same key."""

    async def play() -> None:
        async with Harness(example.app) as harness:
            harness.crash(before="tool_returned", step=4)
            await complaint(harness)
            attempts = [(one.tool, one.why) for one in await harness.attempts("run-1")]
            assert attempts == [("create_ticket", "first"), ("refund", "first"), ("refund", "takeover")]

    run(play())


def test_no_crash_anywhere_changes_anything() -> None:
    """The scenario, once for every await at which its process can die."""
    crash_everywhere(complaint, example.app).raise_for_findings()
