"""Which partition a run belongs to: Java's default partitioner (murmur2 over the key's bytes).

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, as documented by Apache Kafka.
"""

from __future__ import annotations

import re

from runfold.core.errors import InvalidRunId

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_MASK = 0xFFFFFFFF
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def murmur2(data: bytes) -> int:
    """Hash a key as Java's client does; an unsigned 32-bit number."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for index in range(0, whole, 4):
        word = int.from_bytes(data[index : index + 4], "little") * _M & _MASK
        word = (word ^ (word >> _R)) * _M & _MASK
        value = (value * _M & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_of(run_id: str, partitions: int) -> int:
    """Give the partition, 0 <= p < partitions, of everything about a run."""
    return (murmur2(run_id.encode()) & 0x7FFFFFFF) % partitions


def check_run_id(run_id: str) -> str:
    """Give back a run id that the contract allows.

    Raises:
        InvalidRunId: Otherwise; the message says what is allowed.
    """
    if not _RUN_ID.fullmatch(run_id):
        message = f"run_id {run_id!r} is not 1 to 200 characters of [A-Za-z0-9._-]"
        raise InvalidRunId(message)
    return run_id
