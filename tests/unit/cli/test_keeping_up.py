"""Whether the services keep up, from two looks."""

from __future__ import annotations

from typing import Any

import pytest

from runfold.cli.finding import Finding
from runfold.cli.keeping_up import Standing, judged


def _standing(**changes: Any) -> Standing:
    return Standing(**{"end": 10, "applied": 10, "settled": 4, "waiting": 0, **changes})


def _judge(then: Standing, now: Standing) -> tuple[Finding, Finding]:
    """Judge an installation of two partitions, of which one is well."""
    compactor, executors = judged([_standing(), then], [_standing(), now])
    assert (compactor.what, executors.what) == ("compactor", "executors")
    return compactor, executors


def test_nothing_waits() -> None:
    assert [finding.status for finding in _judge(_standing(), _standing())] == ["ok", "ok"]


@pytest.mark.parametrize("end", [10, 50])
def test_a_log_that_nobody_folds_is_wrong(end: int) -> None:
    """Whether it grows or not; of the inputs nothing can be said, since their records may be among those."""
    compactor, executors = _judge(_standing(applied=7, waiting=1), _standing(applied=7, end=end, waiting=1))
    assert compactor.status == "wrong"
    assert f"{end - 7} records of the log, in partition 1, and none came" in compactor.detail
    assert "start a snapshot compactor" in (compactor.mend or "")
    assert executors.status == "ok"


def test_a_compactor_that_is_behind_and_comes_on_is_well() -> None:
    compactor, _ = _judge(_standing(applied=3), _standing(applied=7, end=20))
    assert (compactor.status, compactor.detail) == ("ok", "13 records of the log on the way to the tables")


def test_a_record_that_came_between_the_looks_has_not_waited() -> None:
    compactor, _ = _judge(_standing(), _standing(end=11))
    assert compactor.status == "ok"


def test_inputs_that_nobody_takes_are_noted() -> None:
    _, executors = _judge(_standing(waiting=2), _standing(waiting=3))
    assert executors.status == "note"
    assert "3 inputs within 3 s, in partition 1" in executors.detail
    assert "start a step executor" in (executors.mend or "")


@pytest.mark.parametrize(
    "now",
    [_standing(waiting=0, settled=6), _standing(waiting=2, settled=5), _standing(waiting=2, end=12, applied=12)],
    ids=["taken", "some taken", "its owner steps on and has no room"],
)
def test_an_executor_that_does_something_is_well(now: Standing) -> None:
    _, executors = _judge(_standing(waiting=2), now)
    assert executors.status == "ok"


def test_many_partitions_are_named_by_the_first() -> None:
    looks = [_standing(applied=9)] * 5
    compactor, _ = judged(looks, looks)
    assert "5 records of the log, in partitions 0, 1, 2 and 2 more" in compactor.detail
