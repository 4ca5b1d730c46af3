"""Which answers of Postgres a tenure believes."""

from __future__ import annotations

import pytest

from runfold.core.positions import Positions
from runfold.ports.store import PartitionRow, Watermark
from runfold.runtime.executor.horizon import Horizon, StoreBehind


def row(applied: int) -> PartitionRow:
    """Give the row of partition 3."""
    return PartitionRow(3, 1, "cluster", "topic", applied, 0, 0, 0, Positions())


def watermark(applied: int, cluster: str = "cluster", topic: str = "topic") -> Watermark:
    """Say where the row stood at an answer."""
    return Watermark(cluster, topic, applied)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (watermark(9), "has 9 records applied, and had 10 before: it was restored from an older backup"),
        (None, "is gone: it had 10 records applied"),
        (watermark(10, cluster="other"), "is about cluster other"),
        (watermark(10, topic="other"), "topic other"),
    ],
)
def test_an_answer_from_before_what_was_seen_is_not_believed(answer: Watermark | None, why: str) -> None:
    """And changes nothing: the next one that has come as far is believed."""
    horizon = Horizon(3)
    horizon.begin(row(10))
    with pytest.raises(StoreBehind, match=why):
        horizon.believe(answer, horizon.seen)
    horizon.believe(watermark(10), horizon.seen)


def test_every_answer_raises_what_later_ones_must_have_seen() -> None:
    """What left memory did so because of the farthest answer, not of the take-over."""
    horizon = Horizon(3)
    horizon.begin(row(10))
    horizon.believe(watermark(12), horizon.seen)
    with pytest.raises(StoreBehind):
        horizon.believe(watermark(11), horizon.seen)


def test_an_answer_that_was_overtaken_by_a_later_one_is_no_older_backup() -> None:
    """Of two questions on their way at once, the first one's answer may come last, and from before the second's."""
    horizon = Horizon(3)
    horizon.begin(row(10))
    asked = horizon.seen
    horizon.believe(watermark(12), asked)
    horizon.believe(watermark(11), asked)
    assert horizon.seen == watermark(12)
    with pytest.raises(StoreBehind, match="has 9 records applied, and had 10 before"):
        horizon.believe(watermark(9), asked)


def test_a_take_over_from_an_older_row_relies_on_nothing_newer() -> None:
    """Everything behind that row was folded on from it."""
    horizon = Horizon(3)
    horizon.begin(row(10))
    horizon.begin(row(4))
    horizon.believe(watermark(4), horizon.seen)
    assert horizon.seen == watermark(4)


def test_where_nothing_was_stored_nothing_is_missed() -> None:
    """A fresh installation has no row, and its first one is believed."""
    horizon = Horizon(3)
    horizon.begin(None)
    horizon.believe(None, horizon.seen)
    horizon.believe(watermark(0), horizon.seen)
    horizon.believe(watermark(5), horizon.seen)
    assert horizon.seen == watermark(5)
    with pytest.raises(StoreBehind):
        horizon.believe(None, horizon.seen)
