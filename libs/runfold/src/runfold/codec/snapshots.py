"""Snapshots: a run's state without its transcript, and the transcript in immutable chunks.

The state's bytes hold ``messages_hash``, the chain over the transcript; the digest covers the state's bytes. So the
digest pins everything, and a snapshot costs the same however long the run is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import runfold_schemas
from runfold.codec import shapes
from runfold.codec.avro import PREFIX_SIZE, Schema, unknown_prefix
from runfold.codec.compiled import Codec
from runfold.codec.oldest import Oldest
from runfold.core.errors import UnknownRecord
from runfold.core.state import TRANSCRIPT_SEED, Call, Entry, State
from runfold.core.stored import ChunkRow, SnapshotRow

FOLD_VERSION = 1
"""Raised when the fold gives another state for the same events; snapshots of another one are set aside."""

CHUNK_LIMIT = 1 << 20
"""Bytes of a chunk, unless a single entry is larger."""

# Bytes that an entry takes beside its texts and its payload: seven lengths and a number, rounded up.
_ENTRY_OVERHEAD = 80
_SEPARATE = frozenset({"transcript"})


class CorruptSnapshot(Exception):
    """A snapshot is not what was stored, or its chunks are not all there: set it aside, use the one before it."""


def encode_state(state: State) -> tuple[bytes, str]:
    """Encode everything but the transcript, in the oldest schema that can say it.

    So a state that was folded from an earlier release's events has that release's bytes, and its digest.

    Returns:
        Avro single-object bytes, and their digest (sha256 in hex over the fold version and the bytes).
    """
    _, shape, oldest = _state_codec()
    data = oldest.of(*state.turn).write(shape.write(state))
    return data, digest_of(FOLD_VERSION, data)


def digest_of(fold_version: int, data: bytes) -> str:
    """Give the digest of an encoded state, in hex."""
    return hashlib.sha256(b"runfold.snapshot.%d\0" % fold_version + data).hexdigest()


def encode_chunks(run_id: str, entries: Sequence[Entry], first_index: int, limit: int = CHUNK_LIMIT) -> list[ChunkRow]:
    """Encode the transcript entries since the last snapshot.

    Args:
        run_id: The run.
        entries: Its transcript from ``first_index`` on.
        first_index: Index of the first of them in the transcript, counted from 0.
        limit: Bytes that a chunk may have; an entry above it gets one of its own.

    Returns:
        Rows without a gap, in order; none for no entries.
    """
    codec = _entries_codec()
    rows = []
    for group in _groups(entries, limit):
        rows.append(ChunkRow(run_id, first_index, len(group), codec.write(group)))
        first_index += len(group)
    return rows


def decode_snapshot(row: SnapshotRow, chunks: Sequence[ChunkRow]) -> State:
    """Read a state, and prove that it is what was stored.

    Args:
        row: The snapshot.
        chunks: The run's chunks, in any order; those behind ``row.message_count`` are ignored.

    Raises:
        CorruptSnapshot: Digest, run, ``seq``, message count or transcript hash differ, or entries are missing.
        UnknownRecord: Another fold version, or a schema that this code does not know.
    """
    if row.fold_version != FOLD_VERSION:
        raise UnknownRecord(f"{_name(row)} has fold version {row.fold_version}, this code has {FOLD_VERSION}")
    if digest_of(row.fold_version, row.state) != row.digest:
        raise CorruptSnapshot(f"{_name(row)}: the digest of its {len(row.state)} bytes is not {row.digest}")
    state = _decode_state(row.state)
    if (state.run_id, state.seq) != (row.run_id, row.seq):
        raise CorruptSnapshot(f"{_name(row)} holds run {state.run_id!r} at seq {state.seq}")
    state.transcript = _collect(row, chunks)
    messages_hash = TRANSCRIPT_SEED
    for entry in state.transcript:
        messages_hash = entry.chain(messages_hash)
    if messages_hash != state.messages_hash:
        raise CorruptSnapshot(f"{_name(row)}: its transcript's hash is not the recorded one")
    return state


def decode_chunk(chunk: ChunkRow) -> list[Entry]:
    """Read the entries of one chunk.

    Raises:
        CorruptSnapshot: It holds another number of entries than the row says.
        UnknownRecord: Malformed bytes, or a schema that this code does not know.
    """
    codec = _entries_codec()
    if chunk.data[:PREFIX_SIZE] != codec.schema.prefix:
        raise unknown_prefix(chunk.data)
    entries: list[Entry] = codec.read(chunk.data)
    if len(entries) != chunk.count:
        raise CorruptSnapshot(
            f"chunk {chunk.first_index} of run {chunk.run_id!r} holds {len(entries)} entries, not {chunk.count}"
        )
    return entries


def _decode_state(data: bytes) -> State:
    versions, shape, _ = _state_codec()
    schema = next((known for known in versions if data[:PREFIX_SIZE] == known.prefix), None)
    if schema is None:
        raise unknown_prefix(data)
    newest = versions[-1]
    state: State = shape.read(schema.read(data, None if schema is newest else newest))
    return state


def _collect(row: SnapshotRow, chunks: Sequence[ChunkRow]) -> list[Entry]:
    """Entries [0, message_count). Chunks may overlap (written again from an older snapshot): they say the same."""
    entries: list[Entry] = []
    for chunk in sorted(chunks, key=lambda chunk: (chunk.first_index, chunk.count)):
        known = len(entries)
        if chunk.first_index > known or known >= row.message_count:
            break
        if chunk.first_index + chunk.count > known:
            entries.extend(decode_chunk(chunk)[known - chunk.first_index :])
    if len(entries) < row.message_count:
        raise CorruptSnapshot(f"{_name(row)}: entry {len(entries)} of {row.message_count} is in no chunk")
    return entries[: row.message_count]


def _groups(entries: Sequence[Entry], limit: int) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    size = PREFIX_SIZE + _ENTRY_OVERHEAD
    for entry in entries:
        grown = size + _size(entry)
        if group and grown > limit:
            yield group
            group, grown = [], PREFIX_SIZE + _ENTRY_OVERHEAD + _size(entry)
        group.append(entry)
        size = grown
    if group:
        yield group


def _size(entry: Entry) -> int:
    """An upper bound of an entry's encoded bytes."""
    texts = (entry.kind, entry.tool_call_id, entry.tool, entry.outcome, entry.message_format)
    inline = getattr(entry.payload, "data", b"")
    return _ENTRY_OVERHEAD + sum(len(text.encode()) for text in texts) + len(inline)


def _name(row: SnapshotRow) -> str:
    return f"the snapshot of run {row.run_id!r} at seq {row.seq}"


def _write_due_patches(due: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [{"step": step, "patch": shapes.write_payload(patch)} for step, patch in due]


def _read_due_patches(datum: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    return [(item["step"], shapes.read_payload(item["patch"])) for item in datum]


def _write_used_approvals(used: dict[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    return {wait_id: {"decision": decision, "by": by} for wait_id, (decision, by) in used.items()}


def _read_used_approvals(datum: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    return {wait_id: (item["decision"], item["by"]) for wait_id, item in datum.items()}


_SPECIAL = {
    "due_patches": shapes.Shape(_write_due_patches, _read_due_patches),
    "used_approvals": shapes.Shape(_write_used_approvals, _read_used_approvals),
}


def state_schema() -> Schema:
    """Give the schema of an encoded state."""
    return _state_codec()[0][-1]


@cache
def _state_codec() -> tuple[list[Schema], shapes.Record, Oldest]:
    """Give every version, oldest first; they differ in what they know of a call."""
    folder = runfold_schemas.root() / "snapshot"
    versions = [Schema.load(folder / f"state.v{number}.avsc") for number in (1, 2)]
    shapes.check_fields(State, versions[-1].parsed, skip=_SEPARATE)
    return versions, shapes.record(State, _SPECIAL, skip=_SEPARATE), Oldest(Call, versions, "Call")


@cache
def _entries_codec() -> Codec:
    schema = Schema.load(runfold_schemas.root() / "snapshot" / "entries.v1.avsc")
    shapes.check_fields(Entry, schema.parsed["items"])
    entry = shapes.record(Entry)
    entries = shapes.Record(
        lambda group: [entry.write(one) for one in group], lambda datum: [entry.read(one) for one in datum]
    )
    return Codec(list[Entry], schema, schema, entries)
