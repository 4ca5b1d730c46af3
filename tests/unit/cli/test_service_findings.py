"""What ``runfold check`` says of the services."""

from __future__ import annotations

import pytest

from runfold.cli.service_findings import of_services
from runfold.runtime.keeping_up import Verdict


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Verdict(), [("compactor", "ok", "no record"), ("executors", "ok", "no input")]),
        (
            Verdict(unfolded={1: 7}, unknown=[1]),
            [
                ("compactor", "wrong", "lack 7 records of the log (partition 1), and none came within 15 s"),
                ("executors", "note", "not known while the tables are behind (partition 1)"),
            ],
        ),
        (
            Verdict(untaken={0: 1, 4: 1, 5: 1, 6: 2}),
            [
                ("compactor", "ok", ""),
                ("executors", "note", "nobody took 5 inputs (partitions 0, 4, 5 and 1 more) within 15 s"),
            ],
        ),
        (
            Verdict(damaged=dict.fromkeys(range(5), "log partition is\nanother log")),
            [("log", "wrong", "log partition is another log")] * 3
            + [("log", "wrong", "2 partitions more"), ("compactor", "ok", ""), ("executors", "ok", "")],
        ),
    ],
    ids=["nothing", "no compactor", "no executor", "another log"],
)
def test_findings(seen: Verdict, expected: list[tuple[str, str, str]]) -> None:
    found = of_services(seen)
    assert [(finding.what, finding.status) for finding in found] == [(what, status) for what, status, _ in expected]
    assert all(part in finding.detail for finding, (_, _, part) in zip(found, expected, strict=True))
    assert all((finding.mend is None) == (finding.status == "ok") for finding in found)
