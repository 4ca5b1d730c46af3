"""The audit trail: who decided what about a run, when, and by which input."""

from __future__ import annotations

from typing import Any

import pytest

from runfold.client.views import decision

CAUSE = {"topic": "runfold.requests", "partition": 3, "offset": 7, "id": "x"}
BASE: dict[str, Any] = {"seq": 4, "at": "2026-01-02T03:04:05.678Z", "step": 18, "cause": CAUSE}


@pytest.mark.parametrize(
    ("event", "said", "by", "comment"),
    [
        (
            {"type": "tool_returned", "source": "operator", "is_error": False, "resolved_by": "ops"},
            "result",
            "ops",
            None,
        ),
        ({"type": "tool_returned", "source": "operator", "is_error": True, "resolved_by": "ops"}, "error", "ops", None),
        (
            {"type": "resumed", "reason": "indeterminate", "resumed_by": "ops", "decision": "absent"},
            "absent",
            "ops",
            None,
        ),
        ({"type": "resumed", "reason": "error", "resumed_by": "ops"}, "resumed", "ops", None),
        (
            {"type": "resumed", "reason": "x", "approved_by": "dana", "decision": "rejected", "comment": "no"},
            "rejected",
            "dana",
            "no",
        ),
        ({"type": "cancel_requested", "reason": "too dear", "requested_by": None}, "cancelled", None, "too dear"),
    ],
)
def test_a_persons_decision_is_shown(event: Any, said: str, by: str | None, comment: str | None) -> None:
    found = decision({**BASE, **event})
    assert found is not None
    assert (found["decision"], found["by"], found["comment"]) == (said, by, comment)
    assert (found["cause"], found["at"], found["seq"]) == (CAUSE, BASE["at"], 4)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool_returned", "source": "effects_table", "is_error": False},
        {"type": "resumed", "reason": "unknown_agent", "resumed_by": None},
        {"type": "run_completed"},
    ],
)
def test_what_nobody_decided_is_not(event: Any) -> None:
    assert decision({**BASE, **event}) is None
