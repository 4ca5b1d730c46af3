"""Which records of a partition are valid: the same rule for every reader, for ever.

An event is valid only if its epoch is that of the latest claim before it *and* its ``seq`` is its run's next. A
record that settles an input is valid only if that input is not settled yet. Anything else is void: ignored by
every fold, and counted. So a late write of a process that has lost the partition changes nothing, and neither
does what was pipelined behind an append that was lost.
"""

from __future__ import annotations

import struct
from enum import IntEnum, StrEnum
from typing import NamedTuple

from runfold.core.errors import UnknownRecord
from runfold.core.events import Cause
from runfold.core.positions import Positions

HEADER = "rf"
_LAYOUT = struct.Struct(">Bqq")
_SIZE = _LAYOUT.size


class Kind(IntEnum):
    """What a log record is, as its header says."""

    CLAIM = 0
    SETTLED = 1
    EVENT = 2


# By value: to ask the enum costs as much as all the rest of ``Head.decode``.
_KINDS = tuple(Kind)


class Judgement(StrEnum):
    """What ``Fence.admit`` says of a record."""

    VALID = "valid"
    VOID = "void"
    CLAIM = "claim"


class Head(NamedTuple):
    """The header ``rf`` of a log record: enough to judge what cannot be decoded.

    A tuple, since one is made, and compared with the body, for every record that is read.

    Attributes:
        kind: Claim, settled or event.
        epoch: Of its writer; -1 for a claim.
        seq: Of its run, for an event; else -1.
    """

    kind: Kind
    epoch: int = -1
    seq: int = -1

    def encode(self) -> bytes:
        """Give the 17 bytes of the header: ``>Bqq``."""
        return _LAYOUT.pack(*self)

    @classmethod
    def decode(cls, data: bytes | None) -> Head:
        """Read a header.

        Raises:
            UnknownRecord: If it is missing or malformed: a record that nobody may judge.
        """
        if data is None or len(data) != _SIZE:
            message = f"header {HEADER!r} is missing or not {_SIZE} bytes long: {data!r}"
            raise UnknownRecord(message)
        kind, epoch, seq = _LAYOUT.unpack(data)
        if kind >= len(_KINDS):
            message = f"header {HEADER!r} names an unknown kind of record: {kind}"
            raise UnknownRecord(message)
        return cls(_KINDS[kind], epoch, seq)


def encode_head(kind: Kind, epoch: int, seq: int) -> bytes:
    """Give the bytes of a header that nobody else wants to see.

    Raises:
        TypeError: Epoch or seq is no whole number of 64 bits.
    """
    try:
        return _LAYOUT.pack(kind, epoch, seq)
    except struct.error as error:
        raise TypeError(f"no header has epoch {epoch!r} and seq {seq!r}: {error}") from error


class Fence:
    """Judges the records of one partition, in the order of their offsets.

    Args:
        epoch: The epoch in force before the first record that will be judged; -1 before any claim.
        positions: Which inputs are settled; shared with the caller, raised by valid records.
    """

    __slots__ = ("_next_seq", "epoch", "positions", "void")

    def __init__(self, epoch: int = -1, positions: Positions | None = None) -> None:
        self.epoch = epoch
        self.positions = Positions() if positions is None else positions
        self.void = 0
        self._next_seq: dict[str, int] = {}

    def know(self, run_id: str, next_seq: int) -> None:
        """Tell which ``seq`` a run's next event must have; a run that was never told of starts at 0."""
        self._next_seq[run_id] = next_seq

    def knows(self, run_id: str) -> bool:
        """Whether ``know`` was called, or an event admitted, for a run."""
        return run_id in self._next_seq

    def forget(self, run_id: str) -> None:
        """Drop a run that left memory; it must be told of again before its next event."""
        self._next_seq.pop(run_id, None)

    def admit(self, head: Head, offset: int, key: str | None, cause: Cause | None = None) -> Judgement:
        """Judge one record, and take note of it.

        Args:
            head: Its header.
            offset: Its offset in the log.
            key: The run it belongs to; None for a claim or a settled input.
            cause: The input that it settles, if it could be decoded and settles one.

        Returns:
            CLAIM: the epoch is now ``offset``. VALID: fold it. VOID: ignore it.
        """
        if head.kind is Kind.CLAIM:
            self.epoch = offset
            return Judgement.CLAIM
        if not self._is_valid(head, key, cause):
            self.void += 1
            return Judgement.VOID
        if head.kind is Kind.EVENT and key is not None:
            self._next_seq[key] = head.seq + 1
        if cause is not None:
            self.positions.settle(cause.topic, cause.offset)
        return Judgement.VALID

    def _is_valid(self, head: Head, key: str | None, cause: Cause | None) -> bool:
        if head.epoch != self.epoch:
            return False
        if head.kind is Kind.EVENT and (key is None or head.seq != self._next_seq.get(key, 0)):
            return False
        return cause is None or not self.positions.is_settled(cause.topic, cause.offset)
