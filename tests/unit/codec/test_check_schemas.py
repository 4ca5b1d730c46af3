"""The schema check is silent on this checkout, and speaks when somebody breaks a schema."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import check_schemas


def test_the_schemas_of_this_checkout_are_in_order() -> None:
    assert check_schemas.problems() == []


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the schemas, for breaking."""
    schemas = tmp_path / "schemas"
    shutil.copytree(check_schemas.SCHEMAS, schemas)
    monkeypatch.setattr(check_schemas, "SCHEMAS", schemas)
    monkeypatch.setattr(check_schemas, "PINS", schemas / "fingerprints.json")
    return schemas


def edit(path: Path, old: str, new: str) -> None:
    """Replace one text in a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def only(pattern: str) -> None:
    """Assert that something is wrong, and that it is said."""
    found = check_schemas.problems()
    assert [problem for problem in found if re.search(pattern, problem)], found


def test_a_changed_schema_file_is_named(copy: Path) -> None:
    edit(copy / "log" / "run_failed.v1.avsc", '"error"', '"failure"')
    only(r"schemas/log/run_failed\.v1\.avsc was changed")


def test_a_mended_doc_is_no_change(copy: Path) -> None:
    edit(copy / "log" / "run_failed.v1.avsc", "Why there is no answer.", "Why there is none.")
    assert check_schemas.problems() == []


def test_a_new_file_must_be_pinned_and_exemplified(copy: Path) -> None:
    shutil.copy(copy / "log" / "run_failed.v1.avsc", copy / "log" / "run_failed.v2.avsc")
    only(r"schemas/log/run_failed\.v2\.avsc has no pinned fingerprint")
    only(r"schemas/golden/run_failed\.v2\.json is missing")


def test_a_removed_file_is_named(copy: Path) -> None:
    (copy / "snapshot" / "state.v1.avsc").unlink()
    only(r"schemas/snapshot/state\.v1\.avsc is pinned and gone")


def test_golden_bytes_that_say_something_else_are_named(copy: Path) -> None:
    edit(copy / "golden" / "run_failed.v1.json", "the planner gave up", "the planner went on")
    only(r"golden bytes of schemas/golden/run_failed\.v1\.json no longer say")


def test_an_input_schema_that_is_not_current_is_named(copy: Path) -> None:
    edit(copy / "inputs" / "cancel.json", "10000", "20000")
    only(r"schemas/inputs/cancel\.json is not what .* says: run")
    assert check_schemas.problems(write=True) == []


def test_writing_never_changes_what_is_pinned(copy: Path) -> None:
    """A merged schema is never edited: --write does not make it right."""
    edit(copy / "log" / "run_failed.v1.avsc", '"error"', '"failure"')
    edit(copy / "golden" / "run_failed.v1.json", "the planner gave up", "the planner went on")
    before = (copy / "fingerprints.json").read_text(encoding="utf-8")
    assert len(check_schemas.problems(write=True)) >= 2
    assert (copy / "fingerprints.json").read_text(encoding="utf-8") == before


def test_a_topic_without_a_card_and_a_card_without_a_reason_are_named(copy: Path) -> None:
    (copy / "topics" / "dead.yaml").unlink()
    card = yaml.safe_load((copy / "topics" / "log.yaml").read_text(encoding="utf-8"))
    del card["why"]
    (copy / "topics" / "log.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    only("topic dead: there must be both")
    only("log.yaml lacks 'why'")


def test_a_schema_that_no_message_refers_to_is_named(copy: Path) -> None:
    edit(copy / "asyncapi.yaml", "./inputs/cancel.json", "./inputs/cancelled.json")
    only(r"refers to cancelled\.json, which does not exist")
    only(r"schemas/inputs/cancel\.json is referred to by no message")


def test_an_asyncapi_document_that_is_none_is_named(copy: Path) -> None:
    edit(copy / "asyncapi.yaml", "action: send", "action: throw")
    only(r"is not AsyncAPI 3\.0\.0 at operations/")


def test_a_notification_whose_example_does_not_fit_is_named(copy: Path) -> None:
    path = copy / "notifications" / "run_ended.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["examples"][0]["status"] = "finished"
    path.write_text(json.dumps(schema), encoding="utf-8")
    only(r"an example of schemas/notifications/run_ended\.json does not fit")
