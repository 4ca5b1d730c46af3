"""From the state of a run to its rows: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runfold.codec.snapshots import FOLD_VERSION, encode_chunks, encode_state
from runfold.core.decisions import status
from runfold.core.events import UNKNOWN_VERSION
from runfold.core.state import Call, State, Status, Wait
from runfold.core.stored import ChunkRow, SnapshotRow
from runfold.ports.store import Commit, OpenCallRow, RunRow, WaitRow
from runfold.runtime.restore import Loaded


@dataclass(slots=True)
class Projected:
    """What the store holds of one run: wait_id -> seq that opened it; step -> attempt of an open call."""

    waits: dict[str, int] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)


def run_row(loaded: Loaded, partition: int) -> RunRow:
    """What people are told of a run, as far as it was folded."""
    first_offset, first_epoch = loaded.first or (loaded.last_offset, -1)
    state = loaded.state
    if state is None:
        return RunRow(
            run_id=loaded.run_id,
            partition=partition,
            agent="",
            status=Status.RUNNING,
            step=0,
            seq=0,
            version=UNKNOWN_VERSION,
            usage={},
            cost_nano_usd=None,
            unpriced_calls=0,
            unaccounted_calls=0,
            first_offset=first_offset,
            first_epoch=first_epoch,
            last_offset=loaded.last_offset,
            started_at=0,
            updated_at=0,
            parked=loaded.parked,
        )
    return RunRow(
        run_id=loaded.run_id,
        partition=partition,
        agent=state.agent,
        status=status(state),
        step=state.last_step,
        seq=state.seq,
        version=state.version,
        usage=dict(state.usage),
        cost_nano_usd=state.known_cost,
        unpriced_calls=state.unpriced_calls,
        unaccounted_calls=state.unaccounted_calls,
        first_offset=first_offset,
        first_epoch=first_epoch,
        last_offset=loaded.last_offset,
        started_at=state.started_at,
        updated_at=state.at,
        parked=loaded.parked,
        output=state.output,
        error=state.error,
    )


def project(commit: Commit, state: State, before: Projected | None, opened_at: Mapping[str, int]) -> Projected:
    """Add to a commit how a run's waits and open calls differ from what the store holds.

    Args:
        commit: Added to.
        state: The run now.
        before: What the store holds; None: that is not known, everything is written.
        opened_at: wait_id -> time of the ``interrupted``, where it came with this batch.

    Returns:
        What the store holds after the commit.
    """
    after = Projected(
        {wait.wait_id: wait.seq for wait in state.waits.values()},
        {call.step: call.attempt for call in state.open_calls()},
    )
    if before is None:
        commit.rebuilt.append(state.run_id)
        before = Projected()
    partition = commit.row.partition
    commit.closed_waits.extend((state.run_id, wait_id) for wait_id in before.waits if wait_id not in after.waits)
    commit.closed_calls.extend((state.run_id, step) for step in before.calls if step not in after.calls)
    for wait in state.waits.values():
        if before.waits.get(wait.wait_id) != wait.seq:
            commit.opened_waits.append(_wait_row(state, wait, partition, opened_at.get(wait.wait_id, state.at)))
    for call in state.open_calls():
        if before.calls.get(call.step) != call.attempt:
            commit.opened_calls.append(_call_row(state, call, partition))
    return after


def snapshot(loaded: Loaded, state: State) -> tuple[SnapshotRow, list[ChunkRow]]:
    """Encode a state at its last event, and the messages that no chunk holds yet."""
    data, digest = encode_state(state)
    row = SnapshotRow(
        run_id=loaded.run_id,
        seq=state.seq,
        offset=loaded.last_offset,
        next_offset=None,
        next_epoch=None,
        fold_version=FOLD_VERSION,
        message_count=len(state.transcript),
        state=data,
        digest=digest,
    )
    fresh = state.transcript[loaded.message_count :]
    return row, encode_chunks(loaded.run_id, fresh, loaded.message_count)


def is_at_rest(state: State) -> bool:
    """Whether nothing but an input, or nothing at all, can move the run: it waits or has ended."""
    return status(state) is not Status.RUNNING


def _wait_row(state: State, wait: Wait, partition: int, opened_at: int) -> WaitRow:
    return WaitRow(
        wait_id=wait.wait_id,
        run_id=state.run_id,
        partition=partition,
        step=wait.step,
        seq=wait.seq,
        reason=wait.reason,
        opened_at=opened_at,
        detail=wait.detail,
        tool=wait.tool,
        tool_call_id=wait.tool_call_id,
        arguments=wait.arguments,
        arguments_digest=wait.arguments_digest,
        expires_at=wait.expires_at,
    )


def _call_row(state: State, call: Call, partition: int) -> OpenCallRow:
    if call.arguments is None or call.recovery is None:
        message = f"run {state.run_id!r}: the call of step {call.step} is open without arguments or recovery class"
        raise ValueError(message)
    return OpenCallRow(
        run_id=state.run_id,
        step=call.step,
        partition=partition,
        agent=state.agent,
        tool=call.asked.tool,
        tool_call_id=call.asked.tool_call_id,
        arguments=call.arguments,
        attempt=call.attempt,
        epoch=call.epoch,
        recovery=call.recovery,
        timeout_ms=call.timeout_ms,
        settle_ms=call.settle_ms or 0,
    )
