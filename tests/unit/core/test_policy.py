"""Back-off stays within its bounds; three performed and lost attempts are enough."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runfold.core import policy
from runfold.core.events import AskedCall, Why
from runfold.core.payload import inline_json
from runfold.core.state import Call, ModelCall

JITTER = st.floats(0, 1, exclude_max=True)
MANY = st.integers(0, 10_000)


@given(MANY, JITTER)
def test_backoff_is_bounded_however_often_it_failed(failures: int, jitter: float) -> None:
    """Ten thousand failed claims are an outage, not an overflow."""
    assert 0.2 <= policy.claim_backoff(failures, jitter) <= 5.0
    assert 0.0 <= policy.tool_backoff(failures, jitter) <= 10.0
    assert 0.0 <= policy.model_backoff(failures, jitter, None) <= 10.0


def test_backoff_doubles() -> None:
    """Up to the ceiling."""
    assert [policy.backoff(0.5, failures, 3.0, 1.0) for failures in range(4)] == [0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("retry_after", "expected"), [(0.0, 0.25), (7.0, 7.0), (300.0, 30.0)])
def test_a_providers_retry_after_is_honoured_up_to_30_seconds(retry_after: float, expected: float) -> None:
    """But never shortens the own back-off."""
    assert policy.model_backoff(0, 0.5, retry_after) == expected


def test_lookups_are_asked_1_to_16_seconds_apart() -> None:
    """And no longer, however often."""
    assert [policy.lookup_backoff(tries) for tries in range(5)] == [1, 2, 4, 8, 16]
    assert math.isclose(policy.lookup_backoff(99), 16)


def test_the_third_performed_attempt_that_is_lost_is_the_last() -> None:
    """Superseded ones and retries do not count."""
    call = Call(AskedCall("a", "a", inline_json({})))
    for why in (Why.FIRST, Why.STALE, Why.STALE, Why.RETRY, Why.ABSENT, Why.TAKEOVER):
        call.count(why)
        assert not policy.lost_too_often(call)
    call.count(Why.TAKEOVER)
    assert policy.lost_too_often(call)
    assert policy.lost_too_often(ModelCall(step=1, attempt=3, epoch=0, lost=2))
    assert not policy.lost_too_often(ModelCall(step=1, attempt=2, epoch=0, lost=1))
