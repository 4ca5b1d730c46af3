"""What an operator does about runs that stand still, on real services; and what the services' logs say of it."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.cli.conftest import Commands, Services
from tests.integration.cli.operated import MARKER
from tests.integration.cli.test_life_of_a_run import until, until_waiting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

APP = ("--app", "operated:app")


def followed(runfold: Commands, run: str) -> list[dict[str, Any]]:
    """Give a run's events, once it has ended."""
    return [json.loads(line) for line in runfold("events", run, "--follow", "--json").splitlines()]


def stop(service: "subprocess.Popen[str]") -> None:
    """End a service as a deployment does."""
    service.send_signal(signal.SIGTERM)
    assert service.wait(45) == 0


@pytest.mark.parametrize(
    ("said", "source", "result", "attempts"),
    [
        (("--result", '"it was sent"'), "operator", "it was sent", [1]),
        (("--error", "the post office burnt down"), "operator", "the post office burnt down", [1]),
        (("--absent",), "call", f"sent to {MARKER}", [1, 2]),
    ],
)
def test_a_person_resolves_a_call_whose_outcome_nobody_knows(
    runfold: Commands, service: Services, said: tuple[str, ...], source: str, result: str, attempts: list[int]
) -> None:
    """MANUAL raises: the run waits as indeterminate until the command resolves it; no attempt is made unasked."""
    runfold("setup")
    service("runfold_step_executor", *APP)
    service("runfold_snapshot_compactor")
    runfold("start", "clerk", "--input", '"q"', "--run-id", "run-1", "--timeout", "60")
    wait = until_waiting(runfold, "run-1")
    assert (wait["reason"], wait["step"], wait["tool"]) == ("indeterminate", 2, "send")
    runfold("resolve", "run-1", "7", *said, "--by", "ops", code=1)
    assert "refused (not_open)" in runfold.err
    runfold("resolve", "run-1", "2", *said, "--by", "ops")
    assert "accepted" in runfold.err
    events = followed(runfold, "run-1")
    assert events[-1]["type"] == "run_completed"
    assert [event["attempt"] for event in events if event["type"] == "tool_call_requested"] == attempts
    (returned,) = [event for event in events if event["type"] == "tool_returned"]
    assert (returned["source"], returned["result"]) == (source, result)
    assert [row["status"] for row in until(lambda: runfold.json("list", "--status", "completed"))] == ["completed"]


def test_a_person_accepts_another_version(
    runfold: Commands, service: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another prompt is deployed while the run waits: it is refused, visibly, until `resume --accept-version`."""
    runfold("setup")
    service("runfold_snapshot_compactor")
    monkeypatch.setenv("INSTRUCTIONS", "Publish it.")
    old = service("runfold_step_executor", *APP, "--revision", "r1")
    runfold("start", "editor", "--input", '"q"', "--run-id", "run-1", "--timeout", "60")
    assert until_waiting(runfold, "run-1")["wait_id"] == "run-1:2"
    stop(old)
    monkeypatch.setenv("INSTRUCTIONS", "Publish it at once.")
    service("runfold_step_executor", *APP, "--revision", "r2")
    runfold("approve", "run-1", "run-1:2", "--by", "dana", "--timeout", "60")
    held = until(lambda: [row for row in runfold.json("waits", "run-1") if row["reason"] == "version_mismatch"])
    assert "prompt" in json.dumps(held[0]["detail"])
    runfold("resume", "run-1", "--by", "ops", code=1)
    assert "refused (version_mismatch)" in runfold.err
    runfold("resume", "run-1", "--accept-version", "--by", "ops")
    events = followed(runfold, "run-1")
    assert events[-1]["type"] == "run_completed"
    changed = [event for event in events if event["type"] == "version_changed"]
    assert [event["to"]["revision"] for event in changed] == ["r2"]
    resumed = [event for event in events if event["type"] == "resumed"]
    assert [(event["reason"], event.get("resumed_by")) for event in resumed][-1] == ("version_mismatch", "ops")


def test_logs_are_json_say_where_and_hold_no_payload(
    runfold: Commands, service: Services, installation: dict[str, str], tmp_path: Path
) -> None:
    """Inputs, arguments, results, outputs, refused inputs: none of them is in the log of any of the three services."""
    runfold("setup")
    services = [
        service("runfold_step_executor", *APP, "--inline-limit", "20"),
        service("runfold_snapshot_compactor"),
        service("runfold_reconciler", *APP),
    ]
    start = ("start", "editor", "--input", json.dumps(MARKER * 10), "--run-id", "run-1", "--timeout", "60")
    runfold(*start)
    until_waiting(runfold, "run-1")
    runfold("approve", "run-1", "run-1:9", "--by", "dana", "--comment", MARKER, code=1)
    producer = Producer({"bootstrap.servers": installation["RUNFOLD_KAFKA_BOOTSTRAP"]})
    requests = installation["RUNFOLD_TOPIC_PREFIX"] + "requests"
    producer.produce(requests, json.dumps({"type": "run_started", MARKER: MARKER}).encode(), b"run-2")
    producer.produce(requests, f"no JSON, but {MARKER}".encode(), b"run-3")
    assert producer.flush(30) == 0
    until(lambda: runfold.json("dead", "list")[2:])
    runfold("approve", "run-1", "run-1:2", "--by", "dana")
    assert followed(runfold, "run-1")[-1]["output"] == f"done with {MARKER}"
    for each in services:
        stop(each)

    logs = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("runfold_*.log")}
    assert len(logs) == len(services)
    lines = [json.loads(line) for text in logs.values() for line in text.splitlines()]
    assert MARKER not in "".join(logs.values())
    for line in lines:
        assert {"ts", "level", "service", "event"} <= set(line), line
        assert " " not in line["event"] or not line["logger"].startswith("runfold"), line
    restored = [line for line in lines if line["event"] == "partition_restored"]
    assert {line["partition"] for line in restored} == {0, 1, 2}
    assert all("epoch" in line for line in restored)
    refused = [line for line in lines if line["event"] == "input_dead" and line.get("run_id") == "run-1"]
    assert [line["reason"] for line in refused] == ["not_open"]
    assert {"partition", "epoch"} <= set(refused[0])
