"""The acceptance trace, step by step, with real processes and a real SIGKILL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from demo.errors import DemoError
from demo.installation import Installation
from demo.outside import URL_VARIABLE
from demo.processes import Service, Services
from demo.watching import Follower, await_state
from demo.world import Hold, Turn, World
from runfold.core.partitioning import partition_of

Json = Any
Say = Callable[[str], None]

RUN: Final = "run-8c1"
APP: Final = "demo.app:app"
PARTITIONS: Final = 6
QUESTION: Final = "Why did the orders of 3 May arrive twice?"
APPROVER: Final = "dana@example.com"
KILLED_STEP: Final = 24
KILLED_KEY: Final = f"{RUN}:{KILLED_STEP}"
OUTPUT: Final = "The report is published; two tickets are open."
_PID_S: Final = 60.0

# The n-th answer of the model. Model calls are the odd steps 1 to 17, then 21, 23 and 25.
_SEARCHES: Final = tuple(Turn(calls=[("search", {"query": f"orders, source {number}"})]) for number in range(1, 9))
SCRIPT: Final = (
    *_SEARCHES,
    Turn(
        calls=[
            ("create_ticket", {"title": "Consumer commits before it writes", "priority": 1}),
            ("publish_report", {"body": "Orders were read twice after a restart."}),
        ]
    ),
    Turn(calls=[("search", {"query": "who owns the consumer"})]),
    Turn(calls=[("create_ticket", {"title": "Make the order import idempotent"})]),
    Turn(text=OUTPUT),
)


def answer(_: str, answered: int) -> Turn:
    """Give the model's next answer."""
    return SCRIPT[answered]


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to check when the story is over.

    Attributes:
        events: All events of the run, as `runfold events --json` gives them.
        world: The books of the model and the ticket system.
        at_gate: The row in `runfold show --json`, and ``waits`` in `runfold waits --json`, while no executor ran.
        snapshot_at_gate: The seq that the newest snapshot covered then.
        notification: What the approver was told; ``notifications``: everything that was told.
        started_in: Partition of the foreign start record.
        at_end: `runfold show`, ``listed``: `runfold list`, ``state``: `runfold state`.
        epoch_before, killed_pid: Of the executor that was killed.
        took_over_s: Seconds from SIGKILL to ``tool_returned``.
    """

    events: list[Json]
    world: World
    at_gate: Json
    waits: list[Json]
    snapshot_at_gate: int | None
    notification: Json
    notifications: list[Json]
    started_in: int
    at_end: Json
    listed: list[Json]
    state: Json
    killed_pid: int
    took_over_s: float


def installation_variables(world: World) -> dict[str, str]:
    """Give the variables by which the app finds the world."""
    return {URL_VARIABLE: world.url}


def tell(installation: Installation, services: Services, world: World, say: Say) -> Told:
    """Play the story.

    Raises:
        DemoError: Something did not happen; the message says what.
    """
    hold = world.hold(KILLED_KEY)
    say("runfold setup: topics and tables")
    installation.runfold("setup")
    first = _start_all(services, say)
    with Follower(installation, services, RUN) as follower:
        started_in = _foreign_start(installation, say)
        at_gate, waits, snapshot, resume_at = _reach_gate(installation, services, follower, first, say)
        notification = _approve(installation, say)
        _go_on(services, follower, resume_at, say)
        killed_pid, took_over_s = _kill(services, follower, hold, say)
        ended = follower.until("run_completed", lambda event: event["type"] == "run_completed")
        say(f"  step {follower.seen[-2]['step']} was the last; the run is complete (seq {ended['seq']})")
    at_end = _await_row(installation, services, ended["seq"])
    listed = installation.read("list", "--agent", "research")
    state = installation.read("state", RUN)
    events = installation.events(RUN)
    notifications = installation.notifications()
    say("SIGTERM to every service")
    for service in list(services.running()):
        services.stop(service)
    return Told(
        events=events,
        world=world,
        at_gate=at_gate,
        waits=waits,
        snapshot_at_gate=snapshot,
        notification=notification,
        notifications=notifications,
        started_in=started_in,
        at_end=at_end,
        listed=listed,
        state=state,
        killed_pid=killed_pid,
        took_over_s=took_over_s,
    )


def _start_all(services: Services, say: Say) -> Service:
    executor = services.start("runfold-step-executor", "executor-1")
    others = [
        services.start("runfold-snapshot-compactor", "compactor"),
        services.start("runfold-reconciler", "reconciler"),
    ]
    services.await_ready(executor, *others)
    for service in (executor, *others):
        say(f"  {service.name}: process {service.pid} is ready")
    return executor


def _foreign_start(installation: Installation, say: Say) -> int:
    asked = json.dumps({"question": QUESTION})
    record = installation.foreign(RUN, "start", "--agent", "research", "--input", asked)
    partition, home = int(record["partition"]), partition_of(RUN, PARTITIONS)
    where = "its run's own" if partition == home else f"the run lives in {home}, so it is forwarded"
    say(f"a foreign producer writes run_started for {RUN}: {record['topic']}, partition {partition} ({where})")
    return partition


def _reach_gate(
    installation: Installation, services: Services, follower: Follower, executor: Service, say: Say
) -> tuple[Json, list[Json], int | None, int]:
    """Run to the gate in step 19, then end the only executor; gives the row, its waits, its snapshot, its seq."""
    follower.until("the model's answer in step 17", lambda event: _is(event, "model_responded", 17))
    say("  step 17: the model has answered; it wants create_ticket and publish_report")
    gate = follower.until("the gate in step 19", lambda event: _is(event, "interrupted", 19))
    ticket = follower.until("tool_returned of step 18", lambda event: _is(event, "tool_returned", 18))
    say(f"  step 18: create_ticket gave {ticket['result']['id']}; step 19: the run waits for an approval")
    seconds = services.stop(executor)
    say(f"SIGTERM to the only executor: ended with code 0 after {seconds:.1f} s; nothing executes now")
    last = max(gate["seq"], ticket["seq"])
    row = await_state(services, "the run as a waiting row", lambda: _waiting(installation, last))
    waits = installation.read("waits", RUN)
    snapshot = await_state(services, f"a snapshot at seq {last}", lambda: _covered(installation, last))
    say(f"  the run is a row: {row['status']}, step {row['step']}; a snapshot covers seq 0 to {snapshot}")
    say(f"`runfold waits {RUN}` says:\n{_table(installation.runfold('waits', RUN))}")
    return row, waits, snapshot, last


def _approve(installation: Installation, say: Say) -> Json:
    say("an approver, a process of its own, reads the notification and publishes an approval as JSON")
    notification = installation.foreign(RUN, "approve", "--by", APPROVER)
    say(f"  it was asked: {notification['tool']}({json.dumps(notification['arguments'])})")
    return notification


def _go_on(services: Services, follower: Follower, gate_seq: int, say: Say) -> None:
    executors = [services.start("runfold-step-executor", f"executor-{number}") for number in (2, 3)]
    say(f"two executors are started: processes {', '.join(str(executor.pid) for executor in executors)}")
    resumed = follower.until("resumed", lambda event: event["type"] == "resumed")
    if resumed["seq"] != gate_seq + 1:
        raise DemoError(f"resumed should be the next event after the gate, seq {gate_seq + 1}, not {resumed['seq']}")
    say(f"  the version gate finds the same revision; resumed at seq {resumed['seq']} by {resumed['approved_by']}")
    follower.until("publish_report in step 20", lambda event: _is(event, "tool_returned", 20))
    say("  step 20: the report is published")


def _kill(services: Services, follower: Follower, hold: Hold, say: Say) -> tuple[int, float]:
    follower.until("tool_call_requested in step 24", lambda event: _is(event, "tool_call_requested", KILLED_STEP))
    if not hold.committed.wait(_PID_S):
        raise DemoError(f"the ticket system should have got {KILLED_KEY} within {_PID_S:.0f} s")
    executor = services.by_pid(hold.pid)
    services.kill(executor)
    killed_at = time.monotonic()
    hold.released.set()
    say(f"  step 24: the ticket system has committed {KILLED_KEY} and not answered yet")
    say(f"SIGKILL to {executor.name} (process {executor.pid}): nobody in Runfold knows about the ticket")
    returned = follower.until("tool_returned of step 24", lambda event: _is(event, "tool_returned", KILLED_STEP))
    took = time.monotonic() - killed_at
    say(f"  {took:.1f} s later another executor has the run, and the reconciler has asked for {KILLED_KEY}:")
    say(f"  step 24 returned {returned['result']['id']}, source {returned['source']}")
    return executor.pid, took


def _table(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _is(event: Json, type_: str, step: int) -> bool:
    return bool(event["type"] == type_ and event["step"] == step)


def _waiting(installation: Installation, last: int) -> Json | None:
    if not any(row["run_id"] == RUN and row["seq"] >= last for row in installation.read("list", "--status", "waiting")):
        return None
    return installation.read("show", RUN)


def _covered(installation: Installation, last: int) -> int | None:
    snapshot = installation.snapshot_of(RUN)
    return snapshot if snapshot is not None and snapshot >= last else None


def _await_row(installation: Installation, services: Services, last: int) -> Json:
    """Wait until Postgres knows the end too."""

    def ask() -> Json | None:
        rows = [row for row in installation.read("list") if row["run_id"] == RUN and row["seq"] == last]
        return installation.read("show", RUN) if rows else None

    return await_state(services, f"the ended run as a row with seq {last}", ask)
