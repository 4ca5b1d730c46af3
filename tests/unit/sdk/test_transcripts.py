"""A run's transcript is parsed once, and what is shown to the model is what stands in it now."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)

from runfold.core.state import EntryKind
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


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"a":[1,2.5,-0.0,1e-7,null,true,"\\u20ac"],"b":{}}', id="ordinary"),
        pytest.param(b"[1e400,NaN,12345678901234567890123]", id="numbers"),
        pytest.param(b'"\\ud800"', id="half of a surrogate pair"),
        pytest.param(b"[" * 500 + b"]" * 500, id="deep"),
    ],
)
def test_a_result_is_read_as_the_standard_library_reads_it(data: bytes) -> None:
    """Whichever parser is the faster one, a result that could be recorded can be shown to the model."""
    (built,) = Transcripts().build("run-1", [Message(EntryKind.TOOL, data, "c1", "create", "success")], "")
    assert isinstance(built, ModelRequest)
    (part,) = built.parts
    assert isinstance(part, ToolReturnPart)
    assert repr(part.content) == repr(json.loads(data))
