"""Folds a golden log as every reader of the log does: judge, decode, fold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runfold.codec import log
from runfold.codec.snapshots import encode_state
from runfold.core.decisions import status
from runfold.core.events import InputSettled, PartitionClaimed
from runfold.core.fence import Fence, Head, Judgement
from runfold.core.state import State
from runfold.core.transitions import fold

FOLDER = Path(__file__).parent / "golden"


@dataclass(slots=True)
class Replayed:
    """What a log folds to.

    Attributes:
        void: Offsets of the records that change nothing.
        settled: Input -> its outcome, of the valid ones that caused no event.
    """

    fence: Fence = field(default_factory=Fence)
    states: dict[str, State] = field(default_factory=dict)
    void: list[int] = field(default_factory=list)
    settled: dict[str, str] = field(default_factory=dict)


def replay(path: Path) -> Replayed:
    """Fold a file of records, one JSON object (key, head, value) a line, offsets from 0."""
    found = Replayed()
    for offset, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        record = json.loads(line)
        head, body = Head.decode(bytes.fromhex(record["head"])), log.decode(bytes.fromhex(record["value"]))
        log.check_head(head, body)
        log.check_key(record["key"], body)
        cause = None if isinstance(body, PartitionClaimed) else body.cause
        judgement = found.fence.admit(head, offset, record["key"], cause)
        if judgement is Judgement.VOID:
            found.void.append(offset)
        elif isinstance(body, InputSettled):
            found.settled[f"{body.cause.topic}/{body.cause.partition}/{body.cause.offset}"] = body.outcome
        elif not isinstance(body, PartitionClaimed):
            found.states[body.run_id] = fold(found.states.get(body.run_id), body)
    return found


def result_of(found: Replayed) -> dict[str, Any]:
    """Give what is stored beside a golden log: the digests, and enough to see what has changed when they have."""
    return {
        "epoch": found.fence.epoch,
        "void": found.void,
        "settled": found.settled,
        "positions": found.fence.positions.to_json(),
        "runs": {run_id: _summary(state) for run_id, state in sorted(found.states.items())},
    }


def _summary(state: State) -> dict[str, Any]:
    return {
        "status": status(state).value,
        "seq": state.seq,
        "step": state.step,
        "messages": len(state.transcript),
        "messages_hash": state.messages_hash.hex(),
        "values": {key: payload.digest for key, payload in state.values.items()},
        "waits": {wait_id: wait.reason.value for wait_id, wait in state.waits.items()},
        "used_approvals": {wait_id: list(used) for wait_id, used in state.used_approvals.items()},
        "usage": state.usage,
        "cost_nano_usd": state.cost_nano_usd,
        "unpriced_calls": state.unpriced_calls,
        "unaccounted_calls": state.unaccounted_calls,
        "output": None if state.output is None else state.output.digest,
        "open_keys": list(state.open_keys),
        "digest": encode_state(state)[1],
    }
