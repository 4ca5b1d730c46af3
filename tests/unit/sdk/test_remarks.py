"""What `runfold check` tells an author of an app that is in order."""

from __future__ import annotations

from typing import Any

import pytest

from runfold import Agent, App, Recovery, tool
from runfold.sdk.remarks import remarks
from runfold.testing import ScriptedModel


@tool(recovery=Recovery.RERUN)
def told(name: str) -> str:
    """Say it."""
    return name


@tool(recovery=Recovery.RERUN)
def untold(name, *, times=1) -> Any:  # type: ignore[no-untyped-def]  # noqa: ANN001 - what is tested
    return name * times


def test_a_well_declared_app_has_no_remarks() -> None:
    app = App([Agent("one", model=ScriptedModel([]), instructions="", tools=[told])])
    assert list(remarks(app)) == []


def test_a_missing_docstring_and_missing_types_are_told_once() -> None:
    agents = [Agent(name, model=ScriptedModel([]), instructions="", tools=[untold]) for name in ("one", "two")]
    found = [f"{what}: {said}" for what, said, _ in remarks(App(agents))]
    assert found == [
        "tool untold: it has no docstring, so the model is not told what it does",
        "tool untold: parameters 'name', 'times' have no type, so whatever the model gives is accepted",
    ]


@pytest.mark.parametrize("model", ["openai:gpt-5", "nonsense:model"])
def test_a_model_that_cannot_be_used_here_is_a_remark(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ((what, said, mend),) = remarks(App([Agent("one", model=model, instructions="")]))
    assert what == "agent one"
    assert said.startswith(f"model {model!r} cannot be used from here: ")
    assert "\n" not in said
    assert "provider" in mend
