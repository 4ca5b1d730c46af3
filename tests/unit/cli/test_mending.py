"""What ``verify`` and ``rebuild`` tell a person: what is, what would be, and the command that mends it."""

from __future__ import annotations

import pytest

from runfold.cli.mending import check_known, tell, verdict
from runfold.cli.running import CommandError
from runfold.core.positions import Positions
from runfold.ports.audit import Tables
from runfold.ports.log import LogBounds
from runfold.ports.store import PartitionRow
from runfold.runtime.rebuild.plan import Plan
from runfold.runtime.verifying import Report

ROW = PartitionRow(
    partition=3,
    version=1,
    cluster_id="memory",
    topic_id="t",
    applied=9,
    epoch=0,
    replay_from=9,
    replay_epoch=0,
    positions=Positions(),
)


def test_a_run_that_nobody_knows_is_said_as_show_says_it() -> None:
    with pytest.raises(CommandError, match=r"^there is no run 'nope'; `runfold list` shows those that exist$"):
        check_known("nope", Report(3))


def test_a_run_that_may_not_be_folded_yet_is_not_denied_without_a_word() -> None:
    with pytest.raises(CommandError, match=r"there is no run 'new' \(4 records of its partition not folded yet\);"):
        check_known("new", Report(3, behind=4))


@pytest.mark.parametrize("report", [Report(3, runs=1), Report(3, differences=["another log"]), Report(3, notes=["x"])])
def test_what_is_known_of_a_run_or_its_partition_is_shown(report: Report) -> None:
    check_known("r", report)


def test_differences_name_the_partitions_to_rebuild() -> None:
    """Those, and no others: to rebuild one that is whole costs time for nothing."""
    reports = [Report(0), Report(3, differences=["a", "b"]), Report(5, differences=["c"])]
    said = verdict(reports)
    assert said is not None
    assert said.startswith("3 differences: `runfold rebuild --partition 3 --partition 5` ")
    assert verdict([Report(0)]) is None


@pytest.mark.parametrize(("is_done", "verb"), [(False, "would"), (True, "will")])
def test_a_plan_does_not_read_as_if_it_were_done(
    *, is_done: bool, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(3, ROW, LogBounds(0, 9), Tables(ROW))
    tell(plan, is_done=is_done)
    told = capsys.readouterr().out
    assert told == f"partition 3: the log is whole; 0 runs {verb} be thrown away, and folded again from the log\n"


def test_a_plan_for_a_damaged_log_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Plan(3, ROW, LogBounds(0, 9), Tables(ROW), damage="records are gone", live=["a"]), is_done=False)
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("partition 3: records are gone", "  this would be done:")
    assert third.startswith("  1 run held until a person")
