"""Which records are valid: epochs, sequence numbers, causes."""

from __future__ import annotations

from typing import Any

import pytest

from runfold.core.errors import UnknownRecord
from runfold.core.events import Cause
from runfold.core.fence import Fence, Head, Judgement, Kind, encode_head
from runfold.core.positions import Positions

CLAIM = Head(Kind.CLAIM)
VALID, VOID = Judgement.VALID, Judgement.VOID


def event(epoch: int, seq: int) -> Head:
    """Make the head of an event."""
    return Head(Kind.EVENT, epoch, seq)


def settled(epoch: int) -> Head:
    """Make the head of a settled input."""
    return Head(Kind.SETTLED, epoch)


def test_a_head_survives_encoding() -> None:
    """17 bytes, whatever it is."""
    for head in (CLAIM, settled(2**40), event(0, 2**40)):
        assert len(head.encode()) == 17
        assert Head.decode(head.encode()) == head
    assert Head(Kind.EVENT, 1, 2).encode().hex() == "02" + "0000000000000001" + "0000000000000002"


def test_a_head_is_encoded_with_and_without_an_object() -> None:
    """The same bytes; every kind stands for its number."""
    for kind in Kind:
        assert encode_head(kind, 7, 2**63 - 1) == Head(kind, 7, 2**63 - 1).encode()
        assert Head.decode(encode_head(kind, 7, -1)).kind is kind


@pytest.mark.parametrize("epoch", [2**63, 1.0, None])
def test_a_head_of_no_number_is_refused(epoch: Any) -> None:
    with pytest.raises(TypeError, match="no header has epoch"):
        encode_head(Kind.EVENT, epoch, 0)


@pytest.mark.parametrize("data", [None, b"", b"\x02", CLAIM.encode() + b"\0", b"\x03" + CLAIM.encode()[1:]])
def test_a_record_that_cannot_be_judged_is_an_error(data: bytes | None) -> None:
    """Never skipped."""
    with pytest.raises(UnknownRecord, match="header 'rf'"):
        Head.decode(data)


def test_nothing_is_valid_before_a_claim() -> None:
    """There is no epoch yet."""
    fence = Fence()
    assert fence.admit(event(0, 0), 0, "r") is VOID
    assert fence.admit(settled(0), 1, None, Cause("requests", 0, 0)) is VOID
    assert fence.void == 2
    assert not fence.positions.is_settled("requests", 0)


def test_the_offset_of_the_latest_claim_is_the_epoch() -> None:
    """What a former owner writes after it is void; what it wrote before stays valid."""
    fence = Fence()
    assert fence.admit(CLAIM, 10, None) is Judgement.CLAIM
    assert fence.admit(event(10, 0), 11, "r") is VALID
    assert fence.admit(CLAIM, 12, None) is Judgement.CLAIM
    assert fence.admit(event(10, 1), 13, "r") is VOID
    assert fence.admit(event(12, 1), 14, "r") is VALID
    assert fence.admit(event(13, 2), 15, "r") is VOID
    assert (fence.epoch, fence.void) == (12, 2)


def test_a_late_claim_ends_the_epoch_of_the_true_owner() -> None:
    """The same rule for every reader: the later claim counts, whoever wrote it."""
    fence = Fence()
    fence.admit(CLAIM, 0, None)
    fence.admit(CLAIM, 1, None)
    assert fence.admit(event(0, 0), 2, "r") is VOID
    assert fence.admit(event(1, 0), 3, "r") is VALID


def test_an_event_must_have_its_runs_next_seq() -> None:
    """What was pipelined behind a lost append is void, and so is a second copy; the next owner goes on at the hole."""
    fence = Fence(epoch=0)
    assert fence.admit(event(0, 0), 1, "r") is VALID
    assert fence.admit(event(0, 2), 2, "r") is VOID
    assert fence.admit(event(0, 0), 3, "r") is VOID
    assert fence.admit(event(0, 1), 4, "r") is VALID
    assert fence.admit(event(0, 1), 5, "r") is VOID
    assert fence.admit(event(0, 2), 6, "r") is VALID


def test_runs_are_counted_apart() -> None:
    """Each has a sequence of its own; a new one starts at 0."""
    fence = Fence(epoch=0)
    assert fence.admit(event(0, 0), 1, "r") is VALID
    assert fence.admit(event(0, 0), 2, "s") is VALID
    assert fence.admit(event(0, 1), 3, "t") is VOID
    assert fence.admit(event(0, 1), 4, "r") is VALID


def test_a_run_is_told_of_and_forgotten() -> None:
    """A run restored from a snapshot goes on at its next seq."""
    fence = Fence(epoch=0)
    fence.know("r", 7)
    assert fence.knows("r")
    assert fence.admit(event(0, 7), 1, "r") is VALID
    fence.forget("r")
    fence.forget("never")
    assert not fence.knows("r")
    fence.know("r", 8)
    assert fence.admit(event(0, 8), 2, "r") is VALID


def test_an_input_has_one_record() -> None:
    """The second record with the same cause is void, and moves neither its run nor anything else."""
    fence = Fence(epoch=0)
    cause = Cause("requests", 0, 0)
    assert fence.admit(event(0, 0), 1, "r", cause) is VALID
    assert fence.admit(event(0, 1), 2, "r", cause) is VOID
    assert fence.admit(settled(0), 3, None, cause) is VOID
    assert fence.admit(event(0, 1), 4, "r", Cause("requests", 0, 1)) is VALID
    assert fence.admit(settled(0), 5, None, Cause("approvals", 0, 0)) is VALID
    assert fence.admit(settled(0), 6, None, Cause("approvals", 0, 0, "same place, other id")) is VOID
    assert fence.admit(settled(0), 7, "s", Cause("control", 0, 0)) is VALID
    assert not fence.knows("s")
    assert fence.positions.to_json() == {
        "approvals": {"next": 1, "above": []},
        "control": {"next": 1, "above": []},
        "requests": {"next": 2, "above": []},
    }


def test_a_void_record_settles_nothing() -> None:
    """The input of a zombie's event is still to be handled."""
    fence = Fence(epoch=5)
    assert fence.admit(event(4, 0), 6, "r", Cause("requests", 0, 0)) is VOID
    assert not fence.positions.is_settled("requests", 0)
    assert fence.admit(event(5, 1), 7, "r", Cause("requests", 0, 0)) is VOID
    assert not fence.positions.is_settled("requests", 0)


def test_positions_are_shared_with_the_caller() -> None:
    """A fence that starts in the middle knows what is settled."""
    positions = Positions()
    positions.settle("requests", 0)
    fence = Fence(3, positions)
    assert fence.admit(settled(3), 4, None, Cause("requests", 0, 0)) is VOID
    assert fence.admit(settled(3), 5, None, Cause("requests", 0, 1)) is VALID
    assert positions.of("requests").next == 2


def test_an_event_without_a_key_is_void() -> None:
    """It belongs to no run."""
    assert Fence(epoch=0).admit(event(0, 0), 1, None) is VOID
