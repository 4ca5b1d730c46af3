"""What must be true when the story is over. Each check gives a line for what is wrong, and nothing if it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from demo.story import APPROVER, KILLED_KEY, KILLED_STEP, OUTPUT, QUESTION, RUN, SCRIPT, Told

Json = Any
MODEL_STEPS: Final = (*range(1, 18, 2), 21, 23, 25)
TOOLS: Final = {
    **dict.fromkeys((*range(2, 17, 2), 22), "search"),
    18: "create_ticket",
    20: "publish_report",
    24: "create_ticket",
}
GATE_STEP: Final = 19


def failures(told: Told) -> list[str]:
    """Give what is wrong; nothing if the story went as it must."""
    checks = (_steps, _sequence, _model, _tools, _gate, _kill, _effects, _spend, _row, _outside)
    return [f"{check.__name__.strip('_')}: {line}" for check in checks for line in check(told)]


def _expect(what: str, found: Json, expected: Json) -> Iterator[str]:
    if found != expected:
        yield f"{what} should be {expected!r} and is {found!r}"


def of_type(told: Told, type_: str) -> list[Json]:
    """Give the events of a type."""
    return [event for event in told.events if event["type"] == type_]


def _steps(told: Told) -> Iterator[str]:
    by_step: dict[int, set[str]] = {}
    for event in told.events:
        if "step" in event:
            by_step.setdefault(event["step"], set()).add(event["type"])
    expected = {
        **{step: {"model_call_requested", "model_responded"} for step in MODEL_STEPS},
        **{step: {"tool_call_requested", "tool_returned"} for step in TOOLS},
        GATE_STEP: {"interrupted", "resumed"},
    }
    yield from _expect("the steps", by_step, expected)
    yield from _expect("the first event", told.events[0]["type"], "run_started")
    yield from _expect("the last event", told.events[-1]["type"], "run_completed")


def _sequence(told: Told) -> Iterator[str]:
    yield from _expect("seq", [event["seq"] for event in told.events], list(range(len(told.events))))
    offsets = [event["offset"] for event in told.events]
    yield from _expect("the offsets", offsets, sorted(set(offsets)))
    yield from _expect("the partitions", len({event["partition"] for event in told.events}), 1)
    yield from _expect("the events of another revision", len(of_type(told, "version_changed")), 0)


def _model(told: Told) -> Iterator[str]:
    completions = of_type(told, "model_responded")
    yield from _expect("completions in the log", len(completions), len(SCRIPT))
    yield from _expect(
        "questions to the model, each with how often it was asked",
        dict(told.world.asked),
        {(QUESTION, answered): 1 for answered in range(len(SCRIPT))},
    )
    yield from _expect(
        "attempts of model calls", {event["attempt"] for event in of_type(told, "model_call_requested")}, {1}
    )


def _tools(told: Told) -> Iterator[str]:
    requested = of_type(told, "tool_call_requested")
    yield from _expect("the tools", {event["step"]: event["tool"] for event in requested}, TOOLS)
    for event in requested:
        yield from _expect(f"the key of step {event['step']}", event["idempotency_key"], f"{RUN}:{event['step']}")
        yield from _expect(f"(attempt, why) of step {event['step']}", (event["attempt"], event["why"]), (1, "first"))
    returned = {event["step"]: event["source"] for event in of_type(told, "tool_returned")}
    sources = {step: "reconciled" if step == KILLED_STEP else "call" for step in TOOLS}
    yield from _expect("where each result came from", returned, sources)
    errors = [event["step"] for event in of_type(told, "tool_returned") if event["is_error"]]
    yield from _expect("steps that returned an error", errors, [])


def _gate(told: Told) -> Iterator[str]:
    arguments = dict(SCRIPT[8].calls)["publish_report"]
    gate, resumed = of_type(told, "interrupted")[0], of_type(told, "resumed")[0]
    yield from _expect("the gate's reason", gate["reason"], "awaiting_approval")
    yield from _expect("the gate's id", gate["wait_id"], f"{RUN}:{GATE_STEP}")
    yield from _expect("the gate's arguments", gate["detail"]["arguments"], arguments)
    yield from _expect("the status while no executor ran", told.at_gate["status"], "waiting")
    yield from _expect("the wait's row", [wait["wait_id"] for wait in told.waits], [f"{RUN}:{GATE_STEP}"])
    yield from _expect("the snapshot behind which nothing was left", told.snapshot_at_gate, resumed["seq"] - 1)
    decision = (resumed["wait_id"], resumed["approved_by"], resumed["decision"])
    yield from _expect("the decision", decision, (f"{RUN}:{GATE_STEP}", APPROVER, "approved"))
    # The default partitioner of the approver may have put it elsewhere: then its id says where it was written.
    written_to = resumed["cause"]["id"].split("/")[0]
    yield from _expect("the topic of the approval", written_to.rpartition(".")[2], "approvals")
    call = next(event for event in of_type(told, "tool_call_requested") if event["step"] == GATE_STEP + 1)
    yield from _expect("the approval of step 20", call["approval_id"], f"{RUN}:{GATE_STEP}")


def _kill(told: Told) -> Iterator[str]:
    requested, returned = (event for event in told.events if event.get("step") == KILLED_STEP)
    if requested["epoch"] >= returned["epoch"]:
        yield f"step 24 should be ended by another owner than the killed one of epoch {requested['epoch']}"
    posts = [(post.pid, post.is_new) for post in told.world.posts if post.key == KILLED_KEY]
    yield from _expect(f"posts with key {KILLED_KEY} (process, took effect)", posts, [(told.killed_pid, True)])
    yield from _expect("the result of step 24", returned["result"], told.world.resources["tickets"][KILLED_KEY])


def _effects(told: Told) -> Iterator[str]:
    tickets, published = [f"{RUN}:18", KILLED_KEY], [f"{RUN}:20"]
    yield from _expect("tickets by key", told.world.effects("tickets"), Counter(tickets))
    yield from _expect("publications by key", told.world.effects("publications"), Counter(published))


def _spend(told: Told) -> Iterator[str]:
    completions = of_type(told, "model_responded")
    for name in ("input_tokens", "output_tokens"):
        total = sum(event["usage"][name] for event in completions)
        yield from _expect(f"the run's {name}", told.at_end["usage"].get(name), total)
    cost = sum(event["cost_usd"] or 0 for event in completions)
    yield from _expect("the run's cost in dollars", round(told.at_end["cost_usd"] or 0, 9), round(cost, 9))


def _row(told: Told) -> Iterator[str]:
    last = told.events[-1]
    yield from _expect("the output", last["output"], OUTPUT)
    for name, view in (("show", told.at_end), ("list", told.listed[0]), ("state", told.state)):
        found = {key: view[key] for key in ("run_id", "agent", "status", "step", "seq", "output", "error")}
        expected = {
            "run_id": RUN,
            "agent": "research",
            "status": "completed",
            "step": MODEL_STEPS[-1],
            "seq": last["seq"],
            "output": OUTPUT,
            "error": None,
        }
        yield from _expect(f"`runfold {name}`", found, expected)
    yield from _expect("runs in `runfold list`", len(told.listed), 1)
    yield from _expect("open waits at the end", told.at_end["waits"], [])


def _outside(told: Told) -> Iterator[str]:
    """Notifications come at least once, so they are counted by id."""
    kinds = {note["id"]: note["type"] for note in told.notifications}
    yield from _expect("what the outside was told", Counter(kinds.values()), Counter(wait_opened=1, run_ended=1))
    gate = of_type(told, "interrupted")[0]
    for field in ("tool", "arguments", "arguments_digest"):
        yield from _expect(f"the notification's {field}", told.notification[field], gate["detail"][field])
    yield from _expect("the notification's approval_id", told.notification["approval_id"], gate["wait_id"])
