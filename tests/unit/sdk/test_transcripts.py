"""A run's transcript is parsed once, and what is shown to the model is what stands in it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart

from runfold.ports.agents import Message
from runfold.sdk import messages
from runfold.sdk.messages import Transcripts
from tests.unit.sdk.transcript import responded, returned, user


def test_a_long_transcript_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step costs what is new in it; what is kept is bounded by bytes, and ends with the run."""
    parsed: list[Message] = []
    original: Callable[[Message], Any] = messages._parse

    def counting(entry: Message) -> Any:
        parsed.append(entry)
        return original(entry)

    monkeypatch.setattr(messages, "_parse", counting)
    transcript = [user("go")]
    transcripts = Transcripts()
    for step in range(30):
        transcript += [responded(ModelResponse([ToolCallPart("create", {}, f"c{step}")])), returned(f"c{step}", step)]
        transcripts.build("run-1", transcript, "")
    assert len(parsed) == len(transcript)
    transcripts.forget("run-1")
    assert transcripts._bytes == 0
    transcripts.build("run-1", transcript, "")
    assert len(parsed) == 2 * len(transcript)
    size = sum(len(entry.data) for entry in transcript)
    small = Transcripts(max_bytes=3 * size - 1)
    for run_id in ("run-1", "run-2", "run-1", "run-3"):
        small.build(run_id, transcript, "")
    assert list(small._runs) == ["run-1", "run-3"]
    assert small._bytes == 2 * size


def test_what_a_lost_append_had_in_its_place_is_not_shown_to_the_model() -> None:
    """The state runs ahead of the log: a completion that was never durable is followed by another."""
    transcripts = Transcripts()
    lost, durable = responded(ModelResponse([TextPart("lost")])), responded(ModelResponse([TextPart("durable")]))
    transcripts.build("run-1", [user("go"), lost, user("and?")], "")
    for transcript in ([user("go"), durable, user("and?")], [user("go")]):
        again = transcripts.build("run-1", transcript, "")
        assert ModelMessagesTypeAdapter.dump_json(again) == ModelMessagesTypeAdapter.dump_json(
            Transcripts().build("run-1", transcript, "")
        )
