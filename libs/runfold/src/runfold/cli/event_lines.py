"""One line an event, for people. Takes the client's JSON; knows nothing of how it was found."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from runfold.cli.words import CUT, call, cost, counted, short, when, why

Json = Any


def event_header() -> str:
    """Give the head of the table of events."""
    return _row("seq", "time (UTC)", "step", "what", "details")


def event_line(event: Json) -> str:
    """Give one event as a line of the table."""
    step = event.get("step")
    return _row(str(event["seq"]), when(event["at"]), "" if step is None else str(step), event["type"], details(event))


def is_cut(line: str) -> bool:
    """Whether something was left out of a line (or holds the sign for it, which does no harm)."""
    return CUT in line


def details(event: Json) -> str:
    """Say what is particular about one event."""
    teller = _TELLERS.get(event["type"])
    return "" if teller is None else " · ".join(part for part in teller(event) if part)


def asked_calls(calls: Json) -> str:
    """Show the tool calls of a completion: ``[{name, arguments}]``."""
    return f"calls {', '.join(call(one['name'], one['arguments'], 40) for one in calls)}" if calls else ""


def _row(seq: str, time: str, step: str, what: str, told: str) -> str:
    line = f"{seq:>5}  {time:<19}  {step:>5}  {what:<20}  {told}".rstrip()
    width = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    return line if not width or len(line) <= width else line[: width - 1] + CUT


def _attempt(event: Json) -> str:
    attempt = event.get("attempt", 1)
    reason = event.get("why")
    return "" if attempt <= 1 else f"attempt {attempt}" + (f" ({reason})" if reason else "")


def _by(name: str | None) -> str:
    return f"by {short(name, 60)}" if name else ""


def _responded(event: Json) -> Sequence[str]:
    usage = event.get("usage") or {}
    tokens = f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)} tokens"
    price = event["cost_usd"]
    spent = "cost unknown" if price is None else cost(price)
    return short(event["text"] or "", 60), asked_calls(event["tool_calls"]), tokens, spent


def _resumed(event: Json) -> Sequence[str]:
    by = _by(event.get("approved_by") or event.get("resumed_by"))
    return event["reason"], event["wait_id"], event.get("decision") or "", by, short(event.get("comment") or "", 60)


def _returned(event: Json) -> Sequence[str]:
    source = event["source"] if event["source"] != "call" else ""
    by = _by(event.get("resolved_by"))
    return "error" if event["is_error"] else "", source, by, _attempt(event), short(event["result"], 100)


_RULES = {"accept": "accepted", "operator": "accepted by operator", "stamped": "known now"}


def _changed(event: Json) -> Sequence[str]:
    return [f"{part} {_RULES.get(rule, rule)}" for part, rule in event["policy"].items()]


_TELLERS: dict[str, Callable[[Json], Sequence[str]]] = {
    "run_started": lambda event: (f"agent {event['agent']}", short(event["input"], 100)),
    "model_call_requested": lambda event: (counted(event["message_count"], "message"), _attempt(event)),
    "model_responded": _responded,
    "model_call_failed": lambda event: (short(event["error"], 120), _attempt(event)),
    "tool_call_requested": lambda event: (
        call(event["tool"], event["arguments"]),
        f"key {event['idempotency_key']}",
        _attempt(event),
    ),
    "tool_returned": _returned,
    "state_patched": lambda event: (f"{event['key']} = {short(event['value'], 80)}",),
    "interrupted": lambda event: (event["reason"], event["wait_id"], short(why(event), 160)),
    "resumed": _resumed,
    "version_changed": _changed,
    "cancel_requested": lambda event: (event["reason"], f"by {event.get('requested_by') or 'nobody named'}"),
    "run_completed": lambda event: (short(event["output"], 120),),
    "run_failed": lambda event: (short(event["error"], 120),),
    "run_cancelled": lambda event: (
        short(event["reason"], 100),
        f"outcome unknown: {', '.join(event['open_keys'])}" if event.get("open_keys") else "nothing left open",
    ),
}
