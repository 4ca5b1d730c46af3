"""Where a run lives, as Kafka's Java client would put it; and which ids a run may have."""

from __future__ import annotations

import pytest

from runfold.core.errors import InvalidRunId
from runfold.core.partitioning import check_run_id, murmur2, partition_of

# From Kafka's own UtilsTest, and (from "abc" on) printed by org.apache.kafka.common.utils.Utils of kafka-clients
# 4.3.1: key, murmur2 as a signed int, toPositive(murmur2) % 12.
JAVA = [
    ("21", -973932308, 0),
    ("foobar", -790332482, 6),
    ("a-little-bit-long-string", -985981536, 8),
    ("a-little-bit-longer-string", -1486304829, 11),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5),
    ("abc", 479470107, 3),
    ("", 275646681, 9),
    ("run-8c1", 1475664331, 7),
    ("x", 2121525046, 10),
    ("run-\u00e9\u4e16", -193854747, 5),
]


@pytest.mark.parametrize(("key", "expected", "partition"), JAVA)
def test_murmur2_is_that_of_the_java_client(key: str, expected: int, partition: int) -> None:
    """Every length of the tail, and bytes above 127."""
    assert murmur2(key.encode()) == expected & 0xFFFFFFFF
    assert partition_of(key, 12) == partition


@pytest.mark.parametrize("run_id", ["r", "run-8c1", "A.b_C-9", "x" * 200])
def test_run_ids_of_the_contract_pass(run_id: str) -> None:
    """They are given back."""
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize("run_id", ["", "x" * 201, "a b", "a/b", "run~child", "r\n", "\u00e9", "a:1"])
def test_other_run_ids_are_refused(run_id: str) -> None:
    """The error names the id and what is allowed."""
    with pytest.raises(InvalidRunId, match="is not 1 to 200 characters of"):
        check_run_id(run_id)
