"""Between the port's rows and the columns of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from runfold.core.events import Recovery, Version, WaitReason
from runfold.core.payload import BlobRef, Inline, Payload
from runfold.core.positions import Positions
from runfold.core.state import Status
from runfold.ports.store import ChunkRow, OpenCallRow, PartitionRow, RunRow, SnapshotRow, WaitRow

Columns = dict[str, Any]
_NUL = rb"\u0000"


def _storable(value: Any) -> Any:  # noqa: ANN401 - any column value
    """Replace what Postgres cannot hold in a text: NUL, which a tool's error or a model's answer may contain."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


def as_json(value: Columns | Sequence[Columns]) -> str:
    """Give rows as the text out of which a statement reads their columns: one parameter, however many they are.

    Bytes are written as Postgres reads them out of a text.

    Raises:
        TypeError: A value that no column holds.
    """
    data = orjson.dumps(value, default=_hex)
    return (orjson.dumps(_storable(value), default=_hex) if _NUL in data else data).decode()


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    message = f"no column holds a {type(value).__name__}"
    raise TypeError(message)


def payload_columns(name: str, payload: Payload | None) -> Columns:
    """Give the three columns of a payload: bytes, or digest and size of the object, or nulls."""
    inline = payload.data if isinstance(payload, Inline) else None
    ref = payload if isinstance(payload, BlobRef) else None
    return {
        name: inline,
        f"{name}_sha256": None if ref is None else ref.sha256,
        f"{name}_size": None if ref is None else ref.size,
    }


def read_payload(row: DictRow, name: str) -> Payload | None:
    """Read the three columns of a payload."""
    sha256 = row[f"{name}_sha256"]
    if sha256 is not None:
        return BlobRef(sha256, row[f"{name}_size"])
    data = row[name]
    return None if data is None else Inline(bytes(data))


def _needed(row: DictRow, name: str) -> Payload:
    payload = read_payload(row, name)
    return Inline(b"") if payload is None else payload


def partition_columns(row: PartitionRow) -> Columns:
    """Columns of ``partitions``; ``version`` is the expected one."""
    return {
        "partition": row.partition,
        "version": row.version,
        "cluster_id": row.cluster_id,
        "topic_id": row.topic_id,
        "applied": row.applied,
        "epoch": row.epoch,
        "replay_from": row.replay_from,
        "replay_epoch": row.replay_epoch,
        "inputs": Jsonb(row.positions.to_json()),
        "tail_offset": None if row.tail is None else row.tail[0],
        "tail_digest": None if row.tail is None else row.tail[1],
        "input_ids": Jsonb(dict(row.input_ids)),
    }


def partition_json(row: PartitionRow, expected_applied: int | None) -> str:
    """Give the columns of ``partitions`` and what is expected there, as the statement ``commit`` reads them."""
    inputs = {"inputs": row.positions.to_json(), "input_ids": dict(row.input_ids)}
    return as_json({**partition_columns(row), **inputs, "expected_applied": expected_applied})


def read_partition(row: DictRow) -> PartitionRow:
    """Read a row of ``partitions``."""
    fields = dict(row)
    positions = Positions.from_json(fields.pop("inputs"))
    offset, digest = fields.pop("tail_offset"), fields.pop("tail_digest")
    return PartitionRow(positions=positions, tail=None if offset is None else (offset, digest), **fields)


def snapshot_columns(row: SnapshotRow) -> Columns:
    """Columns of ``snapshots``, but for ``state``."""
    return {
        "run_id": row.run_id,
        "seq": row.seq,
        "offset": row.offset,
        "next_offset": row.next_offset,
        "next_epoch": row.next_epoch,
        "fold_version": row.fold_version,
        "message_count": row.message_count,
        "digest": row.digest,
    }


def read_snapshot(row: DictRow) -> SnapshotRow:
    """Read a row of ``snapshots``."""
    return SnapshotRow(**row)


def chunk_columns(row: ChunkRow) -> Columns:
    """Columns of ``message_chunks``, but for ``data``."""
    return {"run_id": row.run_id, "first_index": row.first_index, "count": row.count}


def read_chunk(row: DictRow) -> ChunkRow:
    """Read a row of ``message_chunks``."""
    return ChunkRow(**row)


def run_columns(row: RunRow) -> Columns:
    """Columns of ``runs``."""
    version = row.version
    return dict(
        run_id=row.run_id,
        partition=row.partition,
        agent=row.agent,
        status=row.status.value,
        step=row.step,
        seq=row.seq,
        version={
            "revision": version.revision,
            "prompt_hash": version.prompt_hash,
            "tools_hash": version.tools_hash,
            "model": version.model,
            "tools": dict(version.tools),
        },
        usage=dict(row.usage),
        cost_nano_usd=row.cost_nano_usd,
        unpriced_calls=row.unpriced_calls,
        unaccounted_calls=row.unaccounted_calls,
        first_offset=row.first_offset,
        first_epoch=row.first_epoch,
        last_offset=row.last_offset,
        started_at=row.started_at,
        updated_at=row.updated_at,
        parked=row.parked,
        **payload_columns("output", row.output),
        error=row.error,
    )


def read_run(row: DictRow) -> RunRow:
    """Read a row of ``runs``."""
    fields = {name: value for name, value in row.items() if not name.startswith("output")}
    version = fields.pop("version")
    tools = tuple(sorted(version.pop("tools").items()))
    return RunRow(
        status=Status(fields.pop("status")),
        version=Version(tools=tools, **version),
        output=read_payload(row, "output"),
        **fields,
    )


def wait_columns(row: WaitRow) -> Columns:
    """Columns of ``waits``."""
    return dict(
        wait_id=row.wait_id,
        run_id=row.run_id,
        partition=row.partition,
        step=row.step,
        seq=row.seq,
        reason=row.reason.value,
        opened_at=row.opened_at,
        **payload_columns("detail", row.detail),
        tool=row.tool,
        tool_call_id=row.tool_call_id,
        **payload_columns("arguments", row.arguments),
        arguments_digest=row.arguments_digest,
        expires_at=row.expires_at,
    )


def read_wait(row: DictRow) -> WaitRow:
    """Read a row of ``waits``."""
    names = ("wait_id", "run_id", "partition", "step", "seq", "opened_at", "tool", "tool_call_id")
    return WaitRow(
        **{name: row[name] for name in names},
        reason=WaitReason(row["reason"]),
        detail=_needed(row, "detail"),
        arguments=read_payload(row, "arguments"),
        arguments_digest=row["arguments_digest"],
        expires_at=row["expires_at"],
    )


def call_columns(row: OpenCallRow) -> Columns:
    """Columns of ``open_calls``, but for ``inserted_at``."""
    return dict(
        run_id=row.run_id,
        step=row.step,
        partition=row.partition,
        agent=row.agent,
        tool=row.tool,
        tool_call_id=row.tool_call_id,
        **payload_columns("arguments", row.arguments),
        attempt=row.attempt,
        epoch=row.epoch,
        recovery=row.recovery.value,
        timeout_ms=row.timeout_ms,
        settle_ms=row.settle_ms,
    )


def read_call(row: DictRow) -> OpenCallRow:
    """Read the columns of ``open_calls``; others in the row are left alone."""
    names = ("run_id", "step", "partition", "agent", "tool", "tool_call_id", "attempt", "epoch")
    times = ("timeout_ms", "settle_ms")
    return OpenCallRow(
        **{name: row[name] for name in (*names, *times)},
        arguments=_needed(row, "arguments"),
        recovery=Recovery(row["recovery"]),
    )
