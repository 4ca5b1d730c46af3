"""Notifications fit their published schemas, and say what the approver must see."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import runfold_schemas
from golden_examples import examples
from runfold.codec.log import type_name
from runfold.codec.notifications import notification
from runfold.core.events import WaitReason
from runfold.core.payload import BlobRef

EXAMPLES: dict[str, Any] = {type_name(type(record)): record for record in examples()}


def told(event: Any) -> dict[str, Any]:
    """Give the notification of an event; it fits its schema."""
    value = notification(event, "research")
    assert value is not None
    found: dict[str, Any] = json.loads(value)
    schema = json.loads(
        (runfold_schemas.root() / "notifications" / f"{found['type']}.json").read_text(encoding="utf-8")
    )
    Draft202012Validator(schema).validate(found)
    return found


def test_an_approval_shows_what_the_approver_must_see() -> None:
    found = told(EXAMPLES["interrupted"])
    assert (found["type"], found["id"], found["approval_id"]) == ("wait_opened", "run-8c1:41", "run-8c1:19")
    assert (found["tool"], found["arguments"], found["message"]) == ("publish_report", {"body": "…"}, "Publish?")
    assert found["arguments_digest"] == EXAMPLES["interrupted"].arguments_digest
    assert found["expires_at"] == "2026-01-03T03:04:05.678Z"


@pytest.mark.parametrize("reason", [reason for reason in WaitReason if reason is not WaitReason.AWAITING_APPROVAL])
def test_another_wait_has_nothing_to_approve(reason: WaitReason) -> None:
    found = told(dataclasses.replace(EXAMPLES["interrupted"], reason=reason))
    assert found["reason"] == reason
    assert "approval_id" not in found


def test_a_gate_whose_payloads_were_not_read_is_still_told() -> None:
    blob = BlobRef("a" * 64, 70_000)
    found = told(dataclasses.replace(EXAMPLES["interrupted"], detail=blob, arguments=blob))
    assert found["arguments"] == {"$blob": "a" * 64, "size": 70_000}
    assert found["message"] is None


@pytest.mark.parametrize(
    ("name", "status", "output", "error"),
    [
        ("run_completed", "completed", "Because.", None),
        ("run_failed", "failed", None, "the planner gave up"),
        ("run_cancelled", "cancelled", None, "no longer needed"),
    ],
)
def test_an_end_says_how(name: str, status: str, output: object, error: str | None) -> None:
    found = told(EXAMPLES[name])
    assert (found["status"], found["output"], found["error"]) == (status, output, error)


@pytest.mark.parametrize(
    "name",
    sorted(
        EXAMPLES.keys()
        - {"interrupted", "run_completed", "run_failed", "run_cancelled", "partition_claimed", "input_settled"}
    ),
)
def test_nothing_else_is_told(name: str) -> None:
    assert notification(EXAMPLES[name], "research") is None
