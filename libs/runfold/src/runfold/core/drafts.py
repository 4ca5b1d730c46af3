"""From a decision and the facts of the moment to the events to append.

Each function reads the state, allots ``seq``, step and attempt from it, and changes nothing; the caller folds the
draft before it makes the next one. What the state does not know (the time, the epoch, the results of the
author's code) is handed in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from runfold.core.events import (
    Cause,
    Interrupted,
    ModelCallRequested,
    Outcome,
    Recovery,
    Resumed,
    Source,
    ToolCallRequested,
    ToolReturned,
    WaitReason,
    Why,
)
from runfold.core.payload import Inline, Payload, inline_json
from runfold.core.quick import quick
from runfold.core.state import Call, Phase, State, Wait
from runfold.core.text import clip

_EMPTY_OBJECT = len(b"{}")
_MAX_SHOWN_ARGUMENTS = 4096


@quick
@dataclass(frozen=True, slots=True)
class Stamp:
    """The facts of the moment: the writer's epoch, its wall clock (ms since 1970), the input being settled."""

    epoch: int
    at: int
    cause: Cause | None = None


def envelope(state: State, stamp: Stamp) -> dict[str, Any]:
    """Give the shared fields of the run's next event."""
    return {
        "run_id": state.run_id,
        "seq": state.seq + 1,
        "epoch": stamp.epoch,
        "at": stamp.at,
        "cause": stamp.cause,
    }


def model_call(state: State, stamp: Stamp, why: Why, params: Payload) -> ModelCallRequested:
    """Ask the model: the next step, or the next attempt of the current one."""
    call = state.model_call
    return ModelCallRequested(
        **envelope(state, stamp),
        step=state.step + 1 if call is None else call.step,
        attempt=1 if call is None else call.attempt + 1,
        why=why,
        messages_hash=state.messages_hash.hex(),
        message_count=len(state.transcript),
        params=params,
    )


def tool_call(  # noqa: PLR0913 - one per field that the author's tool decides
    state: State,
    stamp: Stamp,
    call: Call,
    why: Why,
    arguments: Payload,
    recovery: Recovery,
    timeout_ms: int,
    *,
    sequential: bool = False,
    key_ttl_ms: int | None = None,
    settle_ms: int | None = None,
    dedupe: bool = False,
) -> ToolCallRequested:
    """Execute a tool: the call's own step if it has one, else the run's next; the next attempt.

    What the first request said of the downstream's memory holds for the later ones.
    """
    step = call.step or state.step + 1
    is_first = call.attempt == 0
    key_ttl_ms = key_ttl_ms if is_first else call.key_ttl_ms
    return ToolCallRequested(
        **envelope(state, stamp),
        step=step,
        tool=call.asked.tool,
        tool_call_id=call.asked.tool_call_id,
        arguments=arguments,
        idempotency_key=state.key(step),
        attempt=call.attempt + 1,
        why=why,
        recovery=recovery,
        timeout_ms=timeout_ms,
        approval_id=call.approval_id,
        sequential=sequential or call.sequential,
        key_ttl_ms=key_ttl_ms,
        settle_ms=settle_ms if is_first else call.settle_ms,
        dedupe=dedupe if is_first else call.dedupe,
        first_requested_at=None if key_ttl_ms is None else _first_requested_at(call, stamp),
    )


def _first_requested_at(call: Call, stamp: Stamp) -> int | None:
    """Say since when a key may be known downstream, for the request that is being made.

    A call that a person declared never to have happened begins anew.
    """
    return stamp.at if call.attempt == 0 or call.phase is Phase.ABSENT else call.first_requested_at


def tool_returned(  # noqa: PLR0913 - one per field of the result
    state: State,
    stamp: Stamp,
    call: Call,
    source: Source,
    outcome: Outcome,
    result: Payload,
    *,
    for_model: Payload | None = None,
    patch: Payload | None = None,
    resolved_by: str | None = None,
) -> ToolReturned:
    """Record the result of a call; a call that was never requested takes the run's next step.

    An empty ``patch`` is left out: it would leave a turn with changes due and none to make.
    """
    return ToolReturned(
        **envelope(state, stamp),
        step=call.step or state.step + 1,
        tool_call_id=call.asked.tool_call_id,
        attempt=call.attempt,
        source=source,
        outcome=outcome,
        result=result,
        for_model=for_model,
        patch=None if patch is None or patch.size <= _EMPTY_OBJECT else patch,
        resolved_by=resolved_by,
    )


def approval_gate(
    state: State,
    stamp: Stamp,
    call: Call,
    arguments: Payload,
    message: str | None,
    detail: dict[str, Any],
    *,
    sequential: bool = False,
) -> Interrupted:
    """Open a gate directly before a call: it takes the run's next step, the call the one after it."""
    step = state.step + 1
    return Interrupted(
        **envelope(state, stamp),
        step=step,
        wait_id=state.key(step),
        reason=WaitReason.AWAITING_APPROVAL,
        detail=inline_json({"message": message, **detail}),
        tool=call.asked.tool,
        tool_call_id=call.asked.tool_call_id,
        arguments=arguments,
        arguments_digest=arguments.digest,
        sequential=sequential,
    )


def interruption(state: State, stamp: Stamp, reason: WaitReason, detail: dict[str, Any]) -> Interrupted:
    """Stop the whole run (error, version, unknown agent): the wait takes the run's next step."""
    step = state.step + 1
    return Interrupted(
        **envelope(state, stamp), step=step, wait_id=state.key(step), reason=reason, detail=inline_json(detail)
    )


def doubt(state: State, stamp: Stamp, call: Call, why: str) -> Interrupted:
    """Nobody knows whether a call happened: the wait is the call's own step, which ``resolve`` names.

    The detail holds what a person needs to find out; times are milliseconds since 1970 by the writers' clocks.
    """
    known = {
        "tool": call.asked.tool,
        **_shown_arguments(call.arguments),
        "idempotency_key": state.key(call.step),
        "attempt": call.attempt,
        "recovery": None if call.recovery is None else call.recovery.value,
        "timeout_ms": call.timeout_ms,
        "error": clip(why),
        "requested_at": call.requested_at,
        "first_requested_at": call.first_requested_at,
    }
    known = {name: value for name, value in known.items() if value is not None}
    return Interrupted(
        **envelope(state, stamp),
        step=call.step,
        wait_id=state.key(call.step),
        reason=WaitReason.INDETERMINATE,
        detail=inline_json(known),
        tool=call.asked.tool,
        tool_call_id=call.asked.tool_call_id,
        arguments=call.arguments,
    )


def _shown_arguments(arguments: Payload | None) -> dict[str, Any]:
    """Small arguments as they are, large ones by their digest."""
    if arguments is None:
        return {}
    if isinstance(arguments, Inline) and arguments.size <= _MAX_SHOWN_ARGUMENTS:
        return {"arguments": json.loads(arguments.data)}
    return {"arguments_digest": arguments.digest}


def resumed(
    state: State,
    stamp: Stamp,
    wait: Wait,
    *,
    by: str | None = None,
    decision: str | None = None,
    comment: str | None = None,
    accept_version: bool = False,
) -> Resumed:
    """Close a wait."""
    return Resumed(
        **envelope(state, stamp),
        step=wait.step,
        wait_id=wait.wait_id,
        reason=wait.reason,
        by=by,
        decision=decision,
        comment=comment,
        accept_version=accept_version,
    )
