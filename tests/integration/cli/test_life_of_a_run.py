"""The commands on a real installation, from setup to the end of a run."""

import json
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cli.conftest import PARTITIONS, Commands, Services

pytestmark = pytest.mark.integration


def test_setup_and_check(runfold: Commands) -> None:
    found = _checked(runfold, code=1)
    assert found["kafka"]["status"] == "ok"
    assert found["topics"]["status"] == "wrong"
    assert found["topics"]["mend"] == "run `runfold setup`"
    assert found["tables"]["status"] == "wrong"
    assert "setup" in found["tables"]["mend"]
    assert runfold("setup").count("made") == 6
    again = runfold("setup")
    assert "made" not in again
    assert "up to date" in again
    found = _checked(runfold)
    assert {row["status"] for row in found.values()} == {"ok"}
    assert "research" in found["app"]["detail"]
    assert "ok" in runfold("check")


def test_setup_refuses_another_partition_count(runfold: Commands) -> None:
    runfold("setup")
    runfold("setup", "--partitions", "5", code=1)
    assert f"set RUNFOLD_PARTITIONS to {PARTITIONS}" in runfold.err


def test_before_setup_every_command_says_what_is_missing(runfold: Commands) -> None:
    runfold("list", code=1)
    assert "runfold setup" in runfold.err
    runfold("dead", "list", code=1)
    assert "runfold setup" in runfold.err


def test_an_input_without_an_executor_is_durably_queued(runfold: Commands) -> None:
    runfold("setup")
    run = runfold("start", "research", "--input", '"q"', "--timeout", "0.2").strip()
    assert "durably queued" in runfold.err
    assert run.startswith("run-")
    runfold("show", run, code=1)
    assert f"there is no run {run!r}" in runfold.err


def test_from_start_to_end(runfold: Commands, service: Services) -> None:
    runfold("setup")
    port = _free_port()
    service("runfold_step_executor", "--inline-limit", "1000", "--metrics-port", str(port))
    service("runfold_snapshot_compactor")
    service("runfold_reconciler")

    assert runfold("start", "research", "--input", '"q"', "--run-id", "run-8c1", "--timeout", "60") == "run-8c1\n"
    assert "accepted: run_started (seq 0)" in runfold.err
    assert json.loads(_get(port, "/readyz")) == {"ready": True, "missing": {}}
    assert 'runfold_executor_inputs_settled_total{outcome="event"} 1.0' in _get(port, "/metrics")
    gate = until_waiting(runfold, "run-8c1")
    assert (gate["wait_id"], gate["tool"], gate["arguments"]) == ("run-8c1:2", "publish", {"body": "x" * 2000})
    assert [row["run_id"] for row in runfold.json("list", "--status", "waiting")] == ["run-8c1"]
    assert "run-8c1:2" in runfold("waits")

    runfold("approve", "run-8c1", "run-8c1:9", "--by", "dana", code=1)
    assert "refused (not_open)" in runfold.err
    runfold("approve", "run-8c1", "run-8c1:2", "--by", "dana", "--comment", "fine")
    assert "accepted: resumed" in runfold.err
    runfold("approve", "run-8c1", "run-8c1:2", "--by", "dana", "--comment", "fine")
    assert "no effect" in runfold.err

    events = [json.loads(line) for line in runfold("events", "run-8c1", "--follow", "--json").splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events] == [
        "run_started",
        "model_call_requested",
        "model_responded",
        "interrupted",
        "resumed",
        "tool_call_requested",
        "tool_returned",
        "model_call_requested",
        "model_responded",
        "run_completed",
    ]
    assert events[5]["arguments"] == {"body": "x" * 2000}
    assert "awaiting_approval · run-8c1:2 · approved · by dana · fine" in runfold("events", "run-8c1")

    shown = runfold.json("show", "run-8c1")
    assert (shown["status"], shown["output"], shown["waits"], shown["seq"]) == ("completed", "done", [], 9)
    assert shown["usage"]["input_tokens"] == 20
    assert [wait["wait_id"] for wait in runfold.json("state", "run-8c1", "--at", "3")["waits"]] == ["run-8c1:2"]
    (dead,) = until(lambda: runfold.json("dead", "list"))
    assert (dead["reason"], dead["key"], dead["value"]["approval_id"]) == ("not_open", "run-8c1", "run-8c1:9")

    runfold("start", "research", "--input", '"other"', "--run-id", "run-8c1", code=1)
    assert "refused (run_exists)" in runfold.err


def test_start_and_wait(runfold: Commands, service: Services) -> None:
    runfold("setup")
    service("runfold_step_executor")
    service("runfold_snapshot_compactor")
    runfold("start", "research", "--input", '"q"', "--run-id", "run-1", "--timeout", "60")
    gate = until_waiting(runfold, "run-1")
    runfold("reject", "run-1", gate["wait_id"], "--by", "dana")
    assert runfold("start", "research", "--input", '"q"', "--run-id", "run-1", "--wait") == '"done"\n'
    assert "run_completed" in runfold.err
    runfold("start", "research", "--input", '"q"', "--run-id", "run-2")
    until_waiting(runfold, "run-2")
    runfold("cancel", "run-2", "--reason", "no longer needed", "--by", "ops")
    runfold("start", "research", "--input", '"q"', "--run-id", "run-2", "--wait", code=1)
    assert "run run-2 ended as cancelled: no longer needed" in runfold.err
    shown = runfold.json("show", "run-2")
    assert (shown["error"], shown["cancel_reason"]) == (None, "no longer needed")


def test_waiting_for_a_run_that_waits_for_a_person(runfold: Commands, service: Services) -> None:
    runfold("setup")
    service("runfold_step_executor")
    service("runfold_snapshot_compactor")
    line = ("start", "research", "--input", '"q"', "--run-id", "run-3", "--timeout", "60")
    runfold(*line, "--wait", "--wait-timeout", "5", code=1)
    assert runfold.err.count("run run-3 waits for awaiting_approval (run-3:2): publish(") == 1
    assert "next: `runfold approve run-3 run-3:2 --by NAME` or `runfold reject run-3 run-3:2" in runfold.err
    assert "run run-3 has not ended within 5 s, and goes on: it waits for awaiting_approval" in runfold.err
    until_waiting(runfold, "run-3")
    assert [row["waiting_for"] for row in runfold.json("list")] == [["awaiting_approval"]]
    assert "next: `runfold approve run-3" in runfold("show", "run-3")


def test_check_says_which_service_is_missing(runfold: Commands, service: Services) -> None:
    """First nobody takes a start; then an executor has, and nobody folds what it appended."""
    runfold("setup")
    line = ("start", "research", "--input", '"q"', "--run-id", "run-4", "--timeout")
    runfold(*line, "0.2")
    found = _checked(runfold)
    assert (found["executors"]["status"], found["compactor"]["status"]) == ("note", "ok")
    assert "nobody took 1 input" in found["executors"]["detail"]
    assert runfold.err == "something waits for the services: looking for up to 15 s whether it moves\n"

    service("runfold_step_executor")
    runfold(*line, "60")
    found = _checked(runfold, code=1)
    assert (found["executors"]["status"], found["compactor"]["status"]) == ("note", "wrong")
    assert "none came within 15 s" in found["compactor"]["detail"]
    assert "not known while the tables are behind" in found["executors"]["detail"]

    service("runfold_snapshot_compactor")
    until_waiting(runfold, "run-4")
    found = _checked(runfold)
    assert (found["executors"]["status"], found["compactor"]["status"]) == ("ok", "ok")


def _checked(runfold: Commands, code: int = 0) -> dict[str, Any]:
    return {row["what"]: row for row in json.loads(runfold("check", "--json", code=code))}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        body: bytes = answer.read()
        return body.decode()


def until_waiting(runfold: Commands, run: str) -> dict[str, Any]:
    """Wait until Postgres shows the run's gate."""
    gate: dict[str, Any] = until(lambda: runfold.json("waits", run))[0]
    return gate


def until(ask: Callable[[], list[Any]]) -> list[Any]:
    """Ask until the answer is not empty: the compactor follows the log, and is not waited for by anybody."""
    pause = threading.Event()
    for _ in range(300):
        if found := ask():
            return found
        pause.wait(0.1)
    message = "the compactor never came so far"
    raise AssertionError(message)
