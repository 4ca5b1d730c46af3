"""The oldest schema version that can say all of a record writes it."""

from __future__ import annotations

import dataclasses

import pytest

from golden_examples import examples
from runfold.codec import log
from runfold.codec.snapshots import encode_state, state_schema
from runfold.core.events import UNKNOWN_VERSION, AskedCall, Recovery, ToolCallRequested, Why
from runfold.core.payload import Inline
from runfold.core.state import Call, State, Turn
from tests.unit.core.building import Run

[REQUESTED] = [record for record in examples() if isinstance(record, ToolCallRequested)]
PLAIN = dataclasses.replace(REQUESTED, key_ttl_ms=None, settle_ms=None, dedupe=False, first_requested_at=None)
OLD, NEW = log.schemas()["tool_call_requested"]


def test_a_request_that_uses_nothing_new_can_be_read_by_the_release_before() -> None:
    value = log.encode(PLAIN)[1]
    assert value.startswith(OLD.prefix)
    assert log.decode(value) == PLAIN


@pytest.mark.parametrize("recovery", Recovery)
def test_what_is_drafted_for_a_plain_tool_is_such_a_request(recovery: Recovery) -> None:
    """Of whatever class, the first one and the next; and so is the state that they fold to."""
    run = Run()
    run.turn("a")
    for why in (Why.FIRST, Why.STALE):
        request = run.do(run.next.request("a", why, recovery=recovery))
        assert log.encode(request)[1].startswith(OLD.prefix)
    assert not encode_state(run.state)[0].startswith(state_schema().prefix)


@pytest.mark.parametrize(
    "new", [{"key_ttl_ms": 1}, {"settle_ms": 1}, {"dedupe": True}, {"first_requested_at": 0}, {"first_requested_at": 5}]
)
def test_a_request_that_uses_anything_new_loses_nothing(new: dict[str, int]) -> None:
    request = dataclasses.replace(PLAIN, **new)  # type: ignore[arg-type]  # one of several fields
    value = log.encode(request)[1]
    assert value.startswith(NEW.prefix)
    assert log.decode(value) == request


def test_a_state_without_new_calls_has_the_bytes_of_the_release_before() -> None:
    """And so its digest, which ``verify`` compares with those that are stored."""
    asked = AskedCall("call-1", "look", Inline(b"{}"))

    def encoded(*calls: Call) -> bytes:
        state = State("r", "a", Inline(b"1"), UNKNOWN_VERSION, started_at=1, epoch=0, at=1, turn=Turn(calls))
        return encode_state(state)[0]

    newest = state_schema().prefix
    assert not encoded().startswith(newest)
    assert not encoded(Call(asked)).startswith(newest)
    assert encoded(Call(asked), Call(asked, requested_at=0)).startswith(newest)
