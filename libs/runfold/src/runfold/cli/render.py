"""The tables that the commands print for people. Takes the client's JSON; knows nothing of how it was found."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runfold.cli.event_lines import asked_calls
from runfold.cli.words import call, cost, counted, hashes_cut, lifts, one_line, short, waits_for, when, why

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


def show(what: str, value: Json) -> None:
    """Print an answer: ``runs``, ``run``, ``state``, ``waits``, ``dead`` or ``checks``.

    What is piped is 160 columns wide and has no padding at the ends of lines.
    """
    if sys.stdout.isatty():
        _SHOWN[what](Console(), value)
        return
    page = io.StringIO()
    _SHOWN[what](Console(file=page, width=_WIDE), value)
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    sys.stdout.write("\n".join(lines).strip("\n") + "\n")


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
                _remarks(row),
            )
            for row in rows
        ],
        "no runs",
    )


def _remarks(row: Json) -> str:
    remarks = [
        f"parked: {short(row['parked'], 60)}" if row["parked"] else "",
        ", ".join(dict.fromkeys(row["waiting_for"])),
        short(row["error"] or row["cancel_reason"] or "", 60),
    ]
    return " · ".join(remark for remark in remarks if remark)


def _run(console: Console, run: Json) -> None:
    version = ", ".join(f"{name} {hashes_cut(value)}" for name, value in run["version"].items() if value)
    pairs = [
        ("run", run["run_id"]),
        ("agent", run["agent"]),
        ("status", run["status"]),
        ("reason", run["cancel_reason"]),
        ("step", f"{run['step']} (last event: seq {run['seq']}, partition {run['partition']})"),
        ("started", f"{when(run['started_at'])} UTC, last event {when(run['updated_at'])} UTC"),
        ("tokens", ", ".join(f"{name} {count}" for name, count in run["usage"].items()) or "none"),
        ("cost", _spent(run)),
        ("version", version),
        ("parked", run["parked"]),
        ("error", run["error"]),
        ("output", None if run["output"] is None else short(run["output"], 2_000)),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name, style="bold"), Text(str(value), style=_STYLES.get(str(value), "")))
    console.print(grid)
    for wait in run["waits"]:
        since = f" since {when(wait['opened_at'])} UTC" if wait.get("opened_at") else ""
        console.print(Text(f"waits{since} for {waits_for(wait)}"))
        console.print(Text(f"  next: {lifts(wait)}"), soft_wrap=True)
    for said in run.get("decisions", ()):
        by, comment = said["by"] or "nobody named", f" ({short(said['comment'], 100)})" if said.get("comment") else ""
        where = "" if said.get("step") is None else f" step {said['step']}"
        console.print(Text(f"{when(said['at'])} UTC: {said['decision']}{where}, by {by}{comment}"), soft_wrap=True)


def _spent(run: Json) -> str:
    unknown = [
        f"{counted(count, 'call')} {what}"
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
                short(why(row), 500),
            )
            for row in rows
        ],
        "nothing waits",
    )
    for reason in dict.fromkeys(row["reason"] for row in rows):
        # Below the table, where a command is not broken up; in general terms where it would be said many times.
        alike = [row for row in rows if row["reason"] == reason]
        general = {"run_id": "RUN", "wait_id": "ID", "step": "STEP", "reason": reason}
        console.print(Text(f"{reason}: {lifts(alike[0] if len(alike) == 1 else general)}"), soft_wrap=True)


def _state(console: Console, state: Json) -> None:
    _run(console, state)
    if state["values"]:
        rows = [(key, short(value, 100)) for key, value in state["values"].items()]
        _table(console, ("state", "value"), rows, "")
    if state["turn"]:
        calls = [
            (call(one["tool"], one["arguments"], 80), one["phase"], str(one["step"] or ""), str(one["attempt"] or ""))
            for one in state["turn"]
        ]
        _table(console, ("call of this turn", "phase", "step", "attempt"), calls, "")
    transcript = [
        (str(entry["seq"]), entry["kind"], entry.get("tool", ""), _said(entry)) for entry in state["transcript"]
    ]
    _table(console, ("seq", "message", "tool", "content"), transcript, "no messages yet")


def _said(entry: Json) -> str:
    """Show a message as text and calls."""
    from runfold.codec.events_json import message_text  # noqa: PLC0415 - it is heavy, and only wanted here

    content = entry["content"]
    if entry["kind"] != "response":
        return short(content, 200)
    message = content[-1] if isinstance(content, list) and content else content
    parts = message.get("parts") if isinstance(message, Mapping) else None
    if not isinstance(parts, list):
        return short(content, 200)
    calls = [
        {"name": part.get("tool_name"), "arguments": _arguments(part.get("args"))}
        for part in parts
        if isinstance(part, Mapping) and part.get("part_kind") == "tool-call"
    ]
    return " · ".join(part for part in (short(message_text(content) or "", 200), asked_calls(calls)) if part)


def _arguments(args: Json) -> Json:
    """Read arguments that a provider left as JSON text."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except ValueError:
        return args


def _dead(console: Console, rows: Json) -> None:
    _table(
        console,
        ("where it stood", "at (UTC)", "reason", "key", "what is wrong"),
        [
            (
                f"{row['topic']}[{row['partition']}]@{row['offset']}",
                when(row["at"]),
                row["reason"] or "",
                one_line(row["key"] or ""),
                short(row["detail"] or row["value"], 200),
            )
            for row in rows
        ],
        "no dead inputs",
    )


def _checks(console: Console, rows: Json) -> None:
    cells = [(row["what"], row["status"], hashes_cut(row["detail"]), row["mend"] or "") for row in rows]
    _table(console, ("what", "status", "found", "how to mend it"), cells, "nothing to check")


_SHOWN: dict[str, Callable[[Console, Json], None]] = {
    "runs": _runs,
    "run": _run,
    "state": _state,
    "waits": _waits,
    "dead": _dead,
    "checks": _checks,
}
