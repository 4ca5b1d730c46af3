"""Logs that earlier releases wrote fold to the results that are stored beside them, in every later release."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from runfold.codec import log
from runfold.codec.snapshots import FOLD_VERSION, decode_snapshot, encode_chunks, encode_state
from runfold.core.stored import SnapshotRow
from tests.replay import make_golden_log
from tests.replay.replaying import FOLDER, replay, result_of

LOGS = sorted(FOLDER.glob("*.jsonl"))


def test_there_is_a_golden_log() -> None:
    assert LOGS


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_golden_log_folds_to_its_stored_result(path: Path) -> None:
    """If only digests differ, the state's encoding has changed: that needs another FOLD_VERSION."""
    stored = json.loads(path.with_suffix(".result.json").read_text(encoding="utf-8"))
    assert result_of(replay(path)) == stored


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_state_of_a_golden_log_comes_back_from_its_snapshot(path: Path) -> None:
    for run_id, state in replay(path).states.items():
        data, digest = encode_state(state)
        row = SnapshotRow(run_id, state.seq, 0, None, None, FOLD_VERSION, len(state.transcript), data, digest)
        assert decode_snapshot(row, encode_chunks(run_id, state.transcript, 0)) == state


def test_the_golden_logs_hold_every_type_of_record() -> None:
    """Void records, take-overs and duplicates among them."""
    held: Counter[type] = Counter()
    for path in LOGS:
        for line in path.read_text(encoding="utf-8").splitlines():
            held[type(log.decode(bytes.fromhex(json.loads(line)["value"])))] += 1
    assert set(log.RECORD_TYPES.values()) - held.keys() == set()
    assert any(replay(path).void for path in LOGS)


def test_this_release_still_writes_the_same_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte: encoding is deterministic, and the maker of the golden log runs."""
    monkeypatch.setattr(make_golden_log, "FOLDER", tmp_path)
    make_golden_log.main("again")
    newest = LOGS[-1].read_bytes()
    assert (tmp_path / "again.jsonl").read_bytes() == newest
