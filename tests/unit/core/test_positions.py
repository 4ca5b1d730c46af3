"""Which inputs are settled, in whatever order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runfold.core.positions import Position, Positions

OFFSETS = st.lists(st.integers(0, 12), unique=True)


@given(OFFSETS)
def test_the_position_is_the_lowest_unsettled_offset(offsets: list[int]) -> None:
    """In whatever order they are settled; ``above`` holds the others, and nothing else."""
    position = Position()
    for offset in offsets:
        assert position.settle(offset)
        assert not position.settle(offset)
    lowest = next(offset for offset in range(14) if offset not in offsets)
    assert position.next == lowest
    assert position.above == {offset for offset in offsets if offset > lowest}
    assert {offset for offset in range(14) if position.is_settled(offset)} == set(offsets)
    assert position.end == max(offsets, default=-1) + 1


@pytest.mark.parametrize(("settled", "end"), [(Position(), 0), (Position(2), 2), (Position(2, {4, 3}), 5)])
def test_nothing_is_settled_from_the_end_on(settled: Position, end: int) -> None:
    """Offsets above a hole are settled too."""
    assert settled.end == end
    assert not Positions({"t": settled}).is_settled("t", end)


@given(st.dictionaries(st.sampled_from(["requests", "approvals", "control"]), OFFSETS))
def test_positions_survive_json(settled: dict[str, list[int]]) -> None:
    """As they are stored in Postgres."""
    positions = Positions()
    for topic, offsets in settled.items():
        for offset in offsets:
            assert positions.settle(topic, offset)
    text = json.dumps(positions.to_json())
    again = Positions.from_json(json.loads(text))
    assert again.to_json() == positions.to_json()
    for topic, offsets in settled.items():
        assert all(again.is_settled(topic, offset) == (offset in offsets) for offset in range(14))


def test_an_unknown_topic_is_at_0() -> None:
    """Asking does not make it known; using it does."""
    positions = Positions()
    assert not positions.is_settled("requests", 0)
    assert positions.to_json() == {}
    assert positions.of("requests").next == 0
    assert positions.to_json() == {"requests": {"next": 0, "above": []}}


@pytest.mark.parametrize("entry", [{}, {"next": 1}, {"next": "1", "above": []}, {"next": 1, "above": {}}])
def test_malformed_positions_are_refused(entry: dict[str, object]) -> None:
    """The error names the topic."""
    with pytest.raises(ValueError, match="'requests' is malformed"):
        Positions.from_json({"requests": entry})
