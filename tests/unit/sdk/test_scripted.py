"""``ScriptedModel`` answers by the number of responses in the messages, whatever happened before."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters

from runfold.testing import ScriptedModel


async def ask(model: ScriptedModel, position: int) -> ModelResponse:
    """Ask with ``position`` responses in the messages."""
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("go")]
    messages += [ModelResponse([TextPart("earlier")])] * position
    return await model.request(messages, None, ModelRequestParameters())


async def test_every_kind_of_item_answers_its_position() -> None:
    """Text, calls in all spellings, a response as it is, a function."""
    given = ModelResponse([ThinkingPart("hm"), ToolCallPart("a", {"x": 1})], provider_name="p")
    script: list[Any] = [
        ("a", {"x": 1}),
        [("a", {}), {"tool": "b", "args": {"y": 2}}, ToolCallPart("c", {"z": 3}, "mine"), {"tool": "d"}],
        ToolCallPart("c", {"z": 3}),
        given,
        lambda messages: f"{len(messages)} messages",
        "done",
    ]
    model = ScriptedModel(script)
    one = await ask(model, 0)
    assert one.parts == [ToolCallPart("a", {"x": 1}, "call-0-0")]
    several = await ask(model, 1)
    assert several.parts == [
        ToolCallPart("a", {}, "call-1-0"),
        ToolCallPart("b", {"y": 2}, "call-1-1"),
        ToolCallPart("c", {"z": 3}, "mine"),
        ToolCallPart("d", {}, "call-1-3"),
    ]
    assert (await ask(model, 2)).tool_calls[0].tool_call_id == "call-2-0"
    as_given = await ask(model, 3)
    assert (as_given.provider_name, as_given.tool_calls[0].tool_call_id) == ("p", "call-3-1")
    assert given.model_name is None
    assert (await ask(model, 4)).text == "5 messages"
    assert (await ask(model, 5)).text == "done"
    assert await ask(model, 0) == one
    assert (one.usage.input_tokens, one.usage.output_tokens) == (10, 5)
    assert model.calls == {0: 2, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


async def test_an_exception_is_raised_each_time() -> None:
    """A function that counts can raise it once."""
    model = ScriptedModel([ConnectionError("down")])
    for _ in range(2):
        with pytest.raises(ConnectionError, match="down"):
            await ask(model, 0)


async def test_beyond_the_end_and_nonsense_are_clear_errors() -> None:
    """Which response was asked for, and what an item may be."""
    with pytest.raises(UserError, match="has 1 items and was asked for response 2"):
        await ask(ScriptedModel(["done"]), 1)
    wrong: list[Any] = [3, {"args": {}}, ("a", 3), {"tool": "a", "arguments": {}}, [3]]
    for item in wrong:
        with pytest.raises(UserError, match="item 0 of the script is"):
            await ask(ScriptedModel([item]), 0)
