"""The example of examples/tickets, followed as its docstring says."""

import json
import os
from pathlib import Path

import pytest

from demo.installation import ROOT, Installation
from demo.processes import Services
from demo.watching import await_state
from devstack import Stack
from tests.acceptance.installing import SHORTEST_SESSION

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

EXAMPLE = ROOT / "examples" / "tickets"


def test_the_example_works_as_its_docstring_says(stack: Stack, tmp_path: Path) -> None:
    """Start, waits, approve, events: a ticket and an approved refund in the book, each under its key."""
    book = tmp_path / "book.json"
    installation = Installation.at(
        stack.environment(),
        tmp_path,
        app="app:app",
        partitions=2,
        kafka=SHORTEST_SESSION,
        extra={"PYTHONPATH": os.fspath(EXAMPLE), "TICKETS_BOOK": os.fspath(book)},
    )
    try:
        installation.runfold("setup")
        with Services(installation.environment, tmp_path / "logs") as services:
            parts = [
                services.start("runfold-step-executor", "executor"),
                services.start("runfold-snapshot-compactor", "compactor"),
            ]
            services.await_ready(*parts)
            installation.runfold("start", "support", "--input", '"The invoice of May is wrong"', "--run-id", "first")
            waits = await_state(services, "the gate", lambda: installation.read("waits") or None)
            assert [(wait["wait_id"], wait["arguments"]["order"]) for wait in waits] == [("first:3", "2026-05-17")]
            installation.runfold("approve", "first", "first:3", "--by", "you")

            def output() -> str | None:
                shown: str | None = installation.read("show", "first")["output"]
                return shown

            assert await_state(services, "the output", output) == "I opened a ticket, and your refund is on its way."
            assert "first:3" in installation.runfold("events", "first")
            for service in parts:
                services.stop(service)
    finally:
        installation.remove()
    entries = json.loads(book.read_text())
    assert entries == {
        "first:2": {"ticket": "The invoice of May is wrong", "priority": 3},
        "first:4": {"refund": "2026-05-17", "amount": "12.50"},
    }
