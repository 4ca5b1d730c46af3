"""Snapshots: a state comes back exactly, and anything else is set aside, never believed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from runfold.codec import shapes, snapshots
from runfold.codec.snapshots import FOLD_VERSION, CorruptSnapshot, decode_snapshot, encode_chunks, encode_state
from runfold.core.errors import UnknownRecord
from runfold.core.events import AskedCall, Recovery, Version, WaitReason
from runfold.core.payload import BlobRef, Inline
from runfold.core.state import TRANSCRIPT_SEED, Call, Entry, EntryKind, ModelCall, Phase, State, Status, Turn, Wait
from runfold.core.stored import ChunkRow, SnapshotRow
from tests.unit.codec.test_log import plain_bytes
from tests.unit.codec.values import instances
from tests.unit.core.building import Run
from tests.unit.core.test_machine import Runs

P = Inline(b'{"a":1}')
BLOB = BlobRef("b" * 64, 70_000)
ENTRY = Entry(EntryKind.TOOL, 9, BLOB, "call-1", "look", "success", "fmt.1")


def with_hash(state: State) -> State:
    """Make ``messages_hash`` that of the transcript."""
    state.messages_hash = TRANSCRIPT_SEED
    for entry in state.transcript:
        state.messages_hash = entry.chain(state.messages_hash)
    return state


def stored(state: State, limit: int = 1 << 20) -> tuple[SnapshotRow, list[ChunkRow]]:
    """Snapshot a state as the compactor does."""
    data, digest = encode_state(state)
    count = len(state.transcript)
    row = SnapshotRow(state.run_id, state.seq, 77, None, None, FOLD_VERSION, count, data, digest)
    return row, encode_chunks(state.run_id, state.transcript, 0, limit)


def comes_back(state: State, limit: int = 1 << 20) -> None:
    """Assert that a state is read as it was written: order of dictionaries and kinds of payloads included."""
    back = decode_snapshot(*stored(state, limit))
    assert back == state
    for name in (field.name for field in dataclasses.fields(State)):
        assert deep(getattr(back, name)) == deep(getattr(state, name)), name


def deep(value: Any) -> Any:
    """Take a value apart, so that equality is exact; an entry's outcome is annotated as text, and read as such."""
    if isinstance(value, Entry):
        value = dataclasses.replace(value, outcome=str(value.outcome))
    if isinstance(value, dict):
        return [(key, deep(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [type(value), *map(deep, value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, Inline | BlobRef):
        return {field.name: deep(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return plain_bytes(value)


def full_state() -> State:
    """Make a state in which no field of any part has its default."""
    call = Call(
        asked=AskedCall("call-1", "look", P),
        phase=Phase.IN_DOUBT,
        step=18,
        approval_id="run-8c1:17",
        sequential=True,
        remark="not now",
        key_ttl_ms=86_400_000,
        settle_ms=30_000,
        dedupe=True,
        first_requested_at=1_767_323_044_000,
        requested_at=1_767_323_045_000,
        arguments=BLOB,
        recovery=Recovery.LOOKUP,
        timeout_ms=10_000,
        attempt=2,
        epoch=1000,
        retries=1,
        lost=2,
        absents=3,
        entry=ENTRY,
        patch=P,
    )
    wait = Wait("run-8c1:18", 18, 40, WaitReason.INDETERMINATE, P, "look", "call-1", BLOB, "d" * 64, 99)
    return with_hash(
        State(
            run_id="run-8c1",
            agent="research",
            input=P,
            version=Version("r", "p", "t", "m", (("look", "s"),)),
            started_at=1,
            seq=41,
            step=18,
            epoch=1000,
            at=2,
            ended=Status.CANCELLED,
            transcript=[Entry(EntryKind.USER, 1, P), ENTRY],
            model_call=ModelCall(17, 2, 1000, is_open=False, failures=1, lost=2, retry_at=3, error="503"),
            turn=Turn([call, Call(AskedCall("call-2", "look", P))]),
            due_patches=[(12, P), (13, BLOB)],
            applied_patches=1,
            values={"z": P, "a": BLOB},
            waits={"run-8c1:18": wait, "run-8c1:2": dataclasses.replace(wait, wait_id="run-8c1:2")},
            used_approvals={"run-8c1:9": ("approved", "dana"), "run-8c1:4": ("rejected", "eve")},
            seen_ids={"id-2", "id-1"},
            used_tools={"look"},
            cancel_reason="no longer needed",
            accept_version=True,
            usage={"output_tokens": 2, "input_tokens": 1},
            cost_nano_usd=5,
            unpriced_calls=6,
            unaccounted_calls=7,
            output=BLOB,
            error="gave up",
            open_keys=("run-8c1:18",),
        )
    )


def test_a_state_with_every_field_set_comes_back() -> None:
    comes_back(full_state())


@pytest.mark.parametrize("part", ["state", "model_call", "call", "wait", "entry"])
def test_the_full_state_leaves_no_field_at_its_default(part: str) -> None:
    """Whoever adds a field has to add it above, where the round trip is proven."""
    state = full_state()
    parts = {
        "state": state,
        "model_call": state.model_call,
        "call": state.turn[0],
        "wait": state.waits["run-8c1:18"],
        "entry": ENTRY,
    }
    found: Any = parts[part]
    for field in dataclasses.fields(found):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert getattr(found, field.name) != default, f"{part}.{field.name}"


def test_a_field_that_the_schema_lacks_is_refused_where_the_schema_is_loaded() -> None:
    """A state's new field may not vanish from its snapshots in silence."""

    @dataclasses.dataclass
    class Grown(State):
        """A state with one more field."""

        forgotten: int = 0

    Grown.__name__ = "State"
    with pytest.raises(ValueError, match=r"must have the fields .*forgotten"):
        shapes.check_fields(Grown, snapshots.state_schema().parsed, skip=frozenset({"transcript"}))


class Snapshots(Runs):
    """Random runs, as in the core's own test, with a snapshot after every rule."""

    @invariant()
    def round_trip(self) -> None:
        """Every reachable state comes back."""
        comes_back(self.state, limit=300)


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(instances(State))
def test_any_state_comes_back(state: State) -> None:
    """Not only those that a fold can reach."""
    comes_back(with_hash(state))


@given(st.lists(instances(Entry), max_size=12), st.integers(1, 400), st.integers(0, 5))
def test_chunks_hold_every_entry_once_and_keep_the_limit(entries: list[Entry], limit: int, first: int) -> None:
    """Without a gap, in order; only a single entry may be above the limit."""
    rows = encode_chunks("r", entries, first, limit)
    assert [entry for row in rows for entry in snapshots.decode_chunk(row)] == entries
    at = first
    for row in rows:
        assert row.first_index == at
        assert len(row.data) <= limit or row.count == 1
        at += row.count


def a_run(turns: int = 4) -> State:
    """Make a run with a transcript."""
    run = Run()
    for _ in range(turns):
        run.turn("look")
        run.do(run.next.request("look"))
        run.do(run.next.result("look"))
    return run.state


def test_chunks_may_overlap_and_come_in_any_order() -> None:
    """A compactor that fell back to an older snapshot writes some entries again."""
    state = a_run()
    row, _ = stored(state)
    chunks = [
        *encode_chunks("run-8c1", state.transcript[6:], 6),
        *encode_chunks("run-8c1", state.transcript[2:5], 2),
        *encode_chunks("run-8c1", state.transcript[:4], 0),
        *encode_chunks("run-8c1", state.transcript[3:8], 3),
    ]
    assert decode_snapshot(row, chunks) == state


def test_chunks_behind_the_snapshot_are_not_its_own() -> None:
    """An older snapshot reads only as far as it counts."""
    state = a_run(2)
    row, _ = stored(state)
    assert decode_snapshot(row, stored(a_run(5))[1]) == state


def test_a_missing_chunk_is_corrupt() -> None:
    row, chunks = stored(a_run(), limit=300)
    assert len(chunks) > 2
    for missing in range(len(chunks)):
        with pytest.raises(CorruptSnapshot, match="is in no chunk"):
            decode_snapshot(row, chunks[:missing] + chunks[missing + 1 :])


def test_another_transcript_is_corrupt() -> None:
    state = a_run()
    row, _ = stored(state)
    changed = [dataclasses.replace(state.transcript[0], payload=Inline(b'"other"')), *state.transcript[1:]]
    with pytest.raises(CorruptSnapshot, match="transcript's hash"):
        decode_snapshot(row, encode_chunks("run-8c1", changed, 0))


def test_a_chunk_that_counts_wrongly_is_corrupt() -> None:
    row, chunks = stored(a_run())
    with pytest.raises(CorruptSnapshot, match="holds 9 entries, not 10"):
        decode_snapshot(row, [dataclasses.replace(chunks[0], count=10)])


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_of_the_state_is_corrupt(at: int, flip: int) -> None:
    row, chunks = stored(full_state())
    data = bytearray(row.state)
    data[at % len(data)] ^= flip
    with pytest.raises(CorruptSnapshot, match="digest"):
        decode_snapshot(dataclasses.replace(row, state=bytes(data)), chunks)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_of_a_chunk_is_never_believed(at: int, flip: int) -> None:
    """Corrupt, unknown, or a change of an entry's ``seq``, which is no part of what the model is asked."""
    state = full_state()
    row, (chunk,) = stored(state)
    data = bytearray(chunk.data)
    data[at % len(data)] ^= flip
    try:
        back = decode_snapshot(row, [dataclasses.replace(chunk, data=bytes(data))])
    except (CorruptSnapshot, UnknownRecord):
        return
    assert with_hash(back).messages_hash == state.messages_hash


@pytest.mark.parametrize("change", [{"run_id": "another"}, {"seq": 40}])
def test_a_row_about_something_else_is_corrupt(change: dict[str, Any]) -> None:
    row, chunks = stored(full_state())
    with pytest.raises(CorruptSnapshot, match="holds run 'run-8c1' at seq 41"):
        decode_snapshot(dataclasses.replace(row, **change), chunks)


def test_another_fold_version_is_unknown() -> None:
    row, chunks = stored(full_state())
    with pytest.raises(UnknownRecord, match="fold version 2"):
        decode_snapshot(dataclasses.replace(row, fold_version=FOLD_VERSION + 1), chunks)


def test_another_schema_is_unknown() -> None:
    row, chunks = stored(full_state())
    data = row.state[:2] + bytes(8) + row.state[10:]
    foreign = dataclasses.replace(row, state=data, digest=snapshots.digest_of(FOLD_VERSION, data))
    with pytest.raises(UnknownRecord, match="0000000000000000"):
        decode_snapshot(foreign, chunks)


def test_the_state_does_not_grow_with_the_run() -> None:
    """A snapshot refers to the messages; its own bytes stay."""
    short, long = encode_state(a_run(2))[0], encode_state(a_run(200))[0]
    assert len(long) - len(short) < 16
