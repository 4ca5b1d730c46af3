"""What people and programs are shown: JSON objects made of rows and states, their payloads read and decoded."""

from __future__ import annotations

from typing import Any

from runfold.client.reader import LoggedEvent
from runfold.codec.events_json import cost_usd, event_json, json_value, shown, timestamp, version_json
from runfold.core.decisions import status
from runfold.core.payload import BlobRef, Inline, Payload
from runfold.core.state import Call, EntryKind, State, Status, Wait
from runfold.ports.blobs import BlobMissing, Blobs
from runfold.ports.store import RunRow, WaitRow

Json = Any


class Payloads:
    """Reads payloads for display; what is lost is shown as lost, and hides nothing else."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def read(self, payload: Payload) -> bytes:
        """Give a payload's bytes.

        Raises:
            BlobsUnavailable, BlobMissing: See ports.blobs.
        """
        return payload.data if isinstance(payload, Inline) else await self._blobs.get(payload)

    async def json(self, payload: Payload | None) -> Json:
        """Give a payload as JSON; None for none."""
        if payload is None:
            return None
        try:
            data = await self.read(payload)
        except BlobMissing as error:
            return {"$missing": payload.digest, "error": str(error)}
        return json_value(data)


async def event(logged: LoggedEvent, payloads: Payloads) -> Json:
    """Show one event as the contract says, with what stands in the object store."""
    stored: dict[Payload, Json] = {}

    def note(payload: Payload) -> Json:
        if isinstance(payload, BlobRef):
            stored[payload] = None
        return shown(payload)

    where = {"partition": logged.partition, "offset": logged.offset}
    view = event_json(logged.event, **where, value_of=note)
    if not stored:
        return view
    for payload in stored:
        stored[payload] = await payloads.json(payload)

    def read(payload: Payload) -> Json:
        return stored[payload] if payload in stored else shown(payload)

    return event_json(logged.event, **where, value_of=read)


def decision(event: Json) -> Json | None:
    """Give what a person decided in an event, as ``event`` shows it; None where nobody did."""
    comment = event.get("comment")
    match event["type"]:
        case "tool_returned" if event["source"] == "operator":
            said, by = ("error" if event["is_error"] else "result"), event.get("resolved_by")
        case "resumed" if event.get("approved_by") or event.get("resumed_by"):
            said, by = event.get("decision") or "resumed", event.get("approved_by") or event.get("resumed_by")
        case "cancel_requested":
            said, by, comment = "cancelled", event["requested_by"], event["reason"]
        case _:
            return None
    return {
        "seq": event["seq"],
        "at": event["at"],
        "step": event.get("step"),
        "decision": said,
        "by": by,
        "comment": comment,
        "cause": event["cause"],
    }


async def run_summary(row: RunRow, payloads: Payloads) -> Json:
    """Show one row of ``runs``."""
    return {
        "run_id": row.run_id,
        "agent": row.agent,
        "status": row.status.value,
        "step": row.step,
        "seq": row.seq,
        "usage": dict(row.usage),
        "cost_usd": cost_usd(row.cost_nano_usd),
        "unpriced_calls": row.unpriced_calls,
        "unaccounted_calls": row.unaccounted_calls,
        "output": await payloads.json(row.output),
        **_ended(row.status, row.error),
        "version": version_json(row.version),
        "partition": row.partition,
        "started_at": timestamp(row.started_at),
        "updated_at": timestamp(row.updated_at),
        "parked": row.parked,
    }


async def folded_summary(state: State, partition: int, payloads: Payloads) -> Json:
    """Show a run that was folded from the log, as ``run_summary`` shows a row."""
    return {
        "run_id": state.run_id,
        "agent": state.agent,
        "status": status(state).value,
        "step": state.last_step,
        "seq": state.seq,
        "usage": dict(state.usage),
        "cost_usd": cost_usd(state.known_cost),
        "unpriced_calls": state.unpriced_calls,
        "unaccounted_calls": state.unaccounted_calls,
        "output": await payloads.json(state.output),
        **_ended(status(state), state.error),
        "version": version_json(state.version),
        "partition": partition,
        "started_at": timestamp(state.started_at),
        "updated_at": timestamp(state.at),
        "parked": None,
    }


def _ended(how: Status, said: str | None) -> Json:
    """Tell an error from the reason that somebody gave for a cancellation; the fold keeps both in one place."""
    is_cancelled = how is Status.CANCELLED
    return {"error": None if is_cancelled else said, "cancel_reason": said if is_cancelled else None}


async def wait_row(row: WaitRow, payloads: Payloads) -> Json:
    """Show one open wait."""
    return {
        "run_id": row.run_id,
        "wait_id": row.wait_id,
        "reason": row.reason.value,
        "step": row.step,
        "seq": row.seq,
        "opened_at": timestamp(row.opened_at),
        **await _waited_for(row, payloads),
    }


async def _wait(wait: Wait, run_id: str, payloads: Payloads) -> Json:
    return {
        "run_id": run_id,
        "wait_id": wait.wait_id,
        "reason": wait.reason.value,
        "step": wait.step,
        "seq": wait.seq,
        **await _waited_for(wait, payloads),
    }


async def _waited_for(wait: Wait | WaitRow, payloads: Payloads) -> Json:
    return {
        "detail": await payloads.json(wait.detail),
        "tool": wait.tool,
        "tool_call_id": wait.tool_call_id,
        "arguments": await payloads.json(wait.arguments),
        "arguments_digest": wait.arguments_digest,
        "expires_at": None if wait.expires_at is None else timestamp(wait.expires_at),
    }


async def waits(state: State, payloads: Payloads) -> list[Json]:
    """Show the open waits of a folded run."""
    return [await _wait(wait, state.run_id, payloads) for wait in state.waits.values()]


async def whole_state(state: State, partition: int, payloads: Payloads) -> Json:
    """Show everything that the fold knows of a run."""
    return {
        **await folded_summary(state, partition, payloads),
        "input": await payloads.json(state.input),
        "values": {key: await payloads.json(value) for key, value in sorted(state.values.items())},
        "waits": await waits(state, payloads),
        "turn": [await _call(call, payloads) for call in state.turn],
        "transcript": [
            {
                "kind": entry.kind.value,
                "seq": entry.seq,
                **({"tool_call_id": entry.tool_call_id, "tool": entry.tool} if entry.kind is EntryKind.TOOL else {}),
                "content": await payloads.json(entry.payload),
            }
            for entry in state.transcript
        ],
        "messages_hash": state.messages_hash.hex(),
        "epoch": state.epoch,
        "cancel_reason": state.cancel_reason,
        "open_keys": list(state.open_keys),
    }


async def _call(call: Call, payloads: Payloads) -> Json:
    return {
        "tool_call_id": call.asked.tool_call_id,
        "tool": call.asked.tool,
        "phase": call.phase.value,
        "step": call.step or None,
        "attempt": call.attempt,
        "arguments": await payloads.json(call.arguments or call.asked.arguments),
    }
