"""The schedule of the chaos, without any process."""

import pytest

from tests.chaos.schedule import ALL_GROUPS, GROUPS, schedule
from tests.crowd.names import CALL_TIMEOUT_S, FRESHNESS_S, GRACE_S, MARGIN_S, PAUSE_S, SESSION_S


def test_the_seed_fixes_the_schedule() -> None:
    """The same seed gives the same faults at the same times, another one others."""
    assert schedule(7, 80.0) == schedule(7, 80.0)
    assert schedule(7, 80.0) != schedule(8, 80.0)


@pytest.mark.parametrize("seconds", [20.0, 80.0, 600.0])
def test_every_kind_of_fault_comes(seconds: float) -> None:
    """However short it is, a run of the chaos has at least one whole round."""
    expected = sorted(kind for kinds in GROUPS.values() for kind in kinds)
    faults = schedule(1, seconds)
    assert sorted(fault.kind for fault in faults[: len(expected)]) == expected
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert faults[-1].at_s < 1.7 * seconds


def test_only_what_is_asked_for_comes() -> None:
    """Groups may be chosen; none gives a calm run."""
    assert {fault.kind for fault in schedule(1, 600.0, ["broker", "storm"])} == {"kill broker", "rebalance storm"}
    assert schedule(1, 600.0, []) == []
    assert set(ALL_GROUPS) == set(GROUPS)


def test_no_pause_is_the_documented_exception() -> None:
    """A pause outlasts the session, and ends before anybody may believe that a call did not happen."""
    assert PAUSE_S[0] > SESSION_S
    assert FRESHNESS_S + PAUSE_S[1] + MARGIN_S <= CALL_TIMEOUT_S + GRACE_S
    assert MARGIN_S >= SESSION_S
