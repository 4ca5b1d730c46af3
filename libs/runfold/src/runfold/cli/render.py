"""What the commands print for people. Takes the client's JSON; knows nothing of how it was found."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Any
_WIDE = 160
_STYLES = {
    "running": "cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "ok": "green",
    "wrong": "red",
    "unreachable": "red",
}


def when(at: str | None) -> str:
    """Show an RFC 3339 time in UTC to the second."""
    return "" if at is None else at[:19].replace("T", " ")


def short(value: Json, limit: int = 80) -> str:
    """Show any JSON on one line, cut at ``limit`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cost(usd: float | None) -> str:
    """Show dollars."""
    return "unknown" if usd is None else f"${usd:.4f}"


# --- events -----------------------------------------------------------------------------------------------------


def event_header() -> str:
    """Give the head of the table of events."""
    return _event_row("seq", "time (UTC)", "step", "what", "details")


def event_line(event: Json) -> str:
    """Give one event as a line of the table."""
    step = event.get("step")
    return _event_row(
        str(event["seq"]), when(event["at"]), "" if step is None else str(step), event["type"], details(event)
    )


def details(event: Json) -> str:
    """Say what is particular about one event."""
    teller = _TELLERS.get(event["type"])
    return "" if teller is None else " · ".join(part for part in teller(event) if part)


def _event_row(seq: str, time: str, step: str, what: str, told: str) -> str:
    line = f"{seq:>5}  {time:<19}  {step:>5}  {what:<20}  {told}".rstrip()
    width = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def _attempt(event: Json) -> str:
    attempt = event.get("attempt", 1)
    why = event.get("why")
    return "" if attempt <= 1 else f"attempt {attempt}" + (f" ({why})" if why else "")


def _responded(event: Json) -> Sequence[str]:
    calls = ", ".join(f"{call['name']}({short(call['arguments'], 40)})" for call in event["tool_calls"])
    usage = event.get("usage") or {}
    tokens = f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)} tokens"
    return short(event["text"] or "", 60), f"calls {calls}" if calls else "", tokens, cost(event["cost_usd"])


def _interrupted(event: Json) -> Sequence[str]:
    detail = event.get("detail") or {}
    if event["reason"] == "awaiting_approval":
        asked = f"{detail.get('tool')}({short(detail.get('arguments'), 60)})"
        return event["reason"], event["wait_id"], asked, detail.get("message") or ""
    return event["reason"], event["wait_id"], short(detail, 100)


def _resumed(event: Json) -> Sequence[str]:
    by = event.get("approved_by") or event.get("resumed_by")
    who = f"by {by}" if by else ""
    return event["reason"], event["wait_id"], event.get("decision") or "", who, short(event.get("comment") or "", 60)


def _returned(event: Json) -> Sequence[str]:
    source = event["source"] if event["source"] != "call" else ""
    return "error" if event["is_error"] else "", source, _attempt(event), short(event["result"], 100)


_TELLERS: dict[str, Callable[[Json], Sequence[str]]] = {
    "run_started": lambda event: (f"agent {event['agent']}", short(event["input"], 100)),
    "model_call_requested": lambda event: (f"{event['message_count']} messages", _attempt(event)),
    "model_responded": _responded,
    "model_call_failed": lambda event: (short(event["error"], 120), _attempt(event)),
    "tool_call_requested": lambda event: (
        f"{event['tool']}({short(event['arguments'], 60)})",
        f"key {event['idempotency_key']}",
        _attempt(event),
    ),
    "tool_returned": _returned,
    "state_patched": lambda event: (f"{event['key']} = {short(event['value'], 80)}",),
    "interrupted": _interrupted,
    "resumed": _resumed,
    "version_changed": lambda event: (short(event["policy"], 100),),
    "cancel_requested": lambda event: (event["reason"], f"by {event.get('requested_by') or 'nobody named'}"),
    "run_completed": lambda event: (short(event["output"], 120),),
    "run_failed": lambda event: (short(event["error"], 120),),
    "run_cancelled": lambda event: (
        f"outcome unknown: {', '.join(event['open_keys'])}" if event.get("open_keys") else "nothing left open",
    ),
}


# --- tables -----------------------------------------------------------------------------------------------------


def show(what: str, value: Json) -> None:
    """Print an answer: ``runs``, ``run``, ``state``, ``waits``, ``dead`` or ``checks``."""
    _SHOWN[what](_console(), value)


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)


def _table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    if not rows:
        console.print(nothing, style="dim")
        return
    table = Table(box=box.SIMPLE, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(table)


def _runs(console: Console, rows: Json) -> None:
    _table(
        console,
        ("run", "agent", "status", "step", "cost", "started (UTC)", "updated (UTC)", "remarks"),
        [
            (
                row["run_id"],
                row["agent"],
                row["status"],
                str(row["step"]),
                cost(row["cost_usd"]),
                when(row["started_at"]),
                when(row["updated_at"]),
                short(row["parked"] or row["error"] or "", 60),
            )
            for row in rows
        ],
        "no runs",
    )


def _run(console: Console, run: Json) -> None:
    pairs = [
        ("run", run["run_id"]),
        ("agent", run["agent"]),
        ("status", run["status"]),
        ("step", f"{run['step']} (last event: seq {run['seq']}, partition {run['partition']})"),
        ("started", f"{when(run['started_at'])} UTC, last event {when(run['updated_at'])} UTC"),
        ("tokens", ", ".join(f"{name} {count}" for name, count in run["usage"].items()) or "none"),
        ("cost", _spent(run)),
        ("version", ", ".join(f"{name} {value}" for name, value in run["version"].items() if value)),
        ("parked", run["parked"]),
        ("error", run["error"]),
        ("output", None if run["output"] is None else short(run["output"], 2_000)),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name, style="bold"), Text(str(value), style=_STYLES.get(str(value), "")))
    console.print(grid)
    if run["waits"]:
        _waits(console, run["waits"])


def _spent(run: Json) -> str:
    unknown = [
        f"{count} calls {what}"
        for what, count in (("without a price", run["unpriced_calls"]), ("unaccounted for", run["unaccounted_calls"]))
        if count
    ]
    return ", ".join([cost(run["cost_usd"]), *unknown])


def _waits(console: Console, rows: Json) -> None:
    _table(
        console,
        ("run", "waits for", "id", "step", "since (UTC)", "what"),
        [
            (
                row["run_id"],
                row["reason"],
                row["wait_id"],
                str(row["step"]),
                when(row.get("opened_at")),
                f"{row['tool']}({short(row['arguments'], 80)})" if row["tool"] else short(row["detail"], 80),
            )
            for row in rows
        ],
        "nothing waits",
    )


def _state(console: Console, state: Json) -> None:
    _run(console, state)
    if state["values"]:
        rows = [(key, short(value, 100)) for key, value in state["values"].items()]
        _table(console, ("state", "value"), rows, "")
    transcript = [
        (str(entry["seq"]), entry["kind"], entry.get("tool", ""), short(entry["content"], 100))
        for entry in state["transcript"]
    ]
    _table(console, ("seq", "message", "tool", "content"), transcript, "no messages yet")


def _dead(console: Console, rows: Json) -> None:
    _table(
        console,
        ("where it stood", "at (UTC)", "reason", "key", "what is wrong"),
        [
            (
                f"{row['topic']}[{row['partition']}]@{row['offset']}",
                when(row["at"]),
                row["reason"] or "",
                row["key"] or "",
                short(row["detail"] or row["value"], 100),
            )
            for row in rows
        ],
        "no dead inputs",
    )


def _checks(console: Console, rows: Json) -> None:
    cells = [(row["what"], row["status"], row["detail"], row["mend"] or "") for row in rows]
    _table(console, ("what", "status", "found", "how to mend it"), cells, "nothing to check")


_SHOWN: dict[str, Callable[[Console, Json], None]] = {
    "runs": _runs,
    "run": _run,
    "state": _state,
    "waits": _waits,
    "dead": _dead,
    "checks": _checks,
}
