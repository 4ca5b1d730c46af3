"""What the outside is told, as JSON: a wait opened, a run ended. At least once, each with a stable ``id``.

A payload in the object store is shown as ``{"$blob": sha256, "size": n}``: a notification stays small.
"""

from __future__ import annotations

from typing import Any

from runfold.codec.events_json import ValueOf, guarded_call, shown, timestamp, wait_detail
from runfold.core.events import Event, Interrupted, RunCancelled, RunCompleted, RunFailed, WaitReason
from runfold.core.payload import canonical_json


def notification(event: Event, agent: str, value_of: ValueOf = shown) -> bytes | None:
    """Give the value of the notification that a valid event causes; None if it causes none. Its key is the run_id."""
    match event:
        case Interrupted():
            return canonical_json(wait_opened(event, agent, value_of))
        case RunCompleted() | RunFailed() | RunCancelled():
            return canonical_json(run_ended(event, agent, value_of))
        case _:
            return None


def wait_opened(event: Interrupted, agent: str, value_of: ValueOf = shown) -> dict[str, Any]:
    """Give the JSON object of an opened wait; for an approval, with what the approver must see."""
    opened = {
        **_shared(event, agent, "wait_opened"),
        "wait_id": event.wait_id,
        "step": event.step,
        "reason": event.reason.value,
        "detail": wait_detail(event, value_of),
    }
    if event.reason is not WaitReason.AWAITING_APPROVAL:
        return opened
    message = opened["detail"].get("message")
    return {**opened, "approval_id": event.wait_id, "message": message, **guarded_call(event, value_of)}


def run_ended(event: RunCompleted | RunFailed | RunCancelled, agent: str, value_of: ValueOf = shown) -> dict[str, Any]:
    """Give the JSON object of an ended run; ``error`` is a text unless it completed."""
    ended = _shared(event, agent, "run_ended")
    match event:
        case RunCompleted():
            return {**ended, "status": "completed", "output": value_of(event.output), "error": None}
        case RunFailed():
            return {**ended, "status": "failed", "output": None, "error": event.error}
        case RunCancelled():
            return {**ended, "status": "cancelled", "output": None, "error": event.reason}


def _shared(event: Event, agent: str, type_: str) -> dict[str, Any]:
    return {
        "type": type_,
        "id": f"{event.run_id}:{event.seq}",
        "run_id": event.run_id,
        "agent": agent,
        "at": timestamp(event.at),
    }
