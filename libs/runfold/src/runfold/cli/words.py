"""How the commands word things: times, numbers, JSON on one line, what a run waits for and what lifts it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Json = Any

_HEX = re.compile(r"[0-9a-f]{20,}")
_HASH_SHOWN = 12
CUT = "…"
"""Stands where a text was cut."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(at: str | None) -> str:
    """Show an RFC 3339 time in UTC to the second."""
    return "" if at is None else at[:19].replace("T", " ")


def one_line(value: Json) -> str:
    """Show any JSON on one line; what a terminal would obey is escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def short(value: Json, limit: int = 80) -> str:
    """Show any JSON on one line, cut at ``limit`` characters."""
    text = one_line(value)
    return text if len(text) <= limit else text[: limit - 1] + CUT


def cost(usd: float | None) -> str:
    """Show dollars."""
    return "unknown" if usd is None else f"${usd:.4f}"


def counted(count: int, noun: str) -> str:
    """Give a number with its noun, in the plural unless it is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def hashes_cut(text: str) -> str:
    """Cut every hexadecimal hash in a text to its first 12 digits."""
    return _HEX.sub(lambda found: found[0][:_HASH_SHOWN], text)


def call(tool: Json, arguments: Json, limit: int = 60) -> str:
    """Show a tool call."""
    return f"{tool}({short({} if arguments is None else arguments, limit)})"


# --- waits ------------------------------------------------------------------------------------------------------


def why(wait: Json) -> str:
    """Say what a wait is about, whole; takes a wait as ``show`` gives it, or an ``interrupted``."""
    detail = wait.get("detail")
    known: Mapping[str, Any] = detail if isinstance(detail, Mapping) else {"error": detail}
    teller = _WHYS.get(wait["reason"])
    return one_line(detail or "") if teller is None else teller(wait, known)


def _approval(wait: Json, detail: Mapping[str, Any]) -> str:
    tool, arguments = wait.get("tool") or detail.get("tool"), wait.get("arguments", detail.get("arguments"))
    asked = call(tool, arguments, 80)
    return f"{asked} · {one_line(detail['message'])}" if detail.get("message") else asked


def _indeterminate(wait: Json, detail: Mapping[str, Any]) -> str:
    tool = wait.get("tool") or detail.get("tool")
    asked = call(tool, wait["arguments"], 80) if wait.get("arguments") is not None else str(tool)
    told = f"{asked} · nobody knows whether it happened: {one_line(detail.get('error') or 'no reason given')}"
    facts = [
        f"key {one_line(detail['idempotency_key'])}" if detail.get("idempotency_key") else "",
        f"attempt {one_line(detail['attempt'])}" if detail.get("attempt") else "",
        one_line(detail.get("recovery") or ""),
        f"asked {_moment(detail['requested_at'])} UTC" if isinstance(detail.get("requested_at"), int) else "",
    ]
    return " · ".join([told, ", ".join(fact for fact in facts if fact)]).removesuffix(" · ")


def _moment(ms: int) -> str:
    """Show milliseconds since 1970 in UTC to the second."""
    return when((_EPOCH + timedelta(milliseconds=ms)).isoformat())


def _mismatch(_: Json, detail: Mapping[str, Any]) -> str:
    parts = detail.get("parts")
    if not isinstance(parts, Mapping) or not parts:
        return one_line(detail)
    *before, last = parts
    named = f"{', '.join(before)} and {last}" if before else str(last)
    return f"{named} {'differ' if before or last == 'tools' else 'differs'}"


_WHYS: dict[str, Callable[[Json, Mapping[str, Any]], str]] = {
    "awaiting_approval": _approval,
    "indeterminate": _indeterminate,
    "version_mismatch": _mismatch,
    "unknown_agent": lambda _, detail: f"no executor knows agent {detail.get('agent')!r}",
    "error": lambda _, detail: one_line(detail.get("error") or detail),
}


def lifts(wait: Json) -> str:
    """Give the exact command that lifts a wait, ``NAME`` and its like left to the person; else what does."""
    run, step = shlex.quote(wait["run_id"]), wait["step"]
    match wait["reason"]:
        case "awaiting_approval":
            gate = f"{run} {shlex.quote(wait['wait_id'])} --by NAME"
            return f"`runfold approve {gate}` or `runfold reject {gate}`"
        case "indeterminate":
            said = f"`runfold resolve {run} {step} --by NAME"
            return f"{said} --result JSON` (it happened), {said} --absent` (it did not), or {said} --error TEXT`"
        case "version_mismatch":
            return f"`runfold resume {run} --accept-version --by NAME`, or deploy the version that it started under"
        case "unknown_agent":
            return (
                "start an executor whose app has this agent, and the run goes on by itself; if the name is misspelt, "
                f"`runfold cancel {run} --reason TEXT --by NAME`"
            )
        case _:
            return f"mend the cause, then `runfold resume {run} --by NAME`"


def waits_for(wait: Json) -> str:
    """Say on one line what a run waits for."""
    return f"{wait['reason']} ({wait['wait_id']}): {why(wait)}"


def wait_notice(wait: Json) -> str:
    """Say what a run waits for, and on a line of its own what lifts it."""
    return f"run {wait['run_id']} waits for {short(waits_for(wait), 500)}\n  next: {lifts(wait)}"
