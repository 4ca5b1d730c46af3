"""``ScriptedModel``: a model that answers from a list, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

Item = (
    str
    | ModelResponse
    | ToolCallPart
    | tuple[str, Mapping[str, Any]]
    | Mapping[str, Any]
    | Sequence[ToolCallPart | tuple[str, Mapping[str, Any]] | Mapping[str, Any]]
    | Exception
    | Callable[[list[ModelMessage]], Any]
)

_THEN = datetime(1970, 1, 1, tzinfo=UTC)


class ScriptedModel(FunctionModel):
    """Answers by the number of responses already in the messages, so it needs no memory and survives any restart.

    Item *n* of the script answers a request whose messages hold *n* responses. An item is one of:

    * ``"text"``: a text, which ends the run;
    * one tool call: ``("tool", {arguments})``, ``{"tool": "name", "args": {...}}``, ``{"tool": "name"}`` (no
      arguments), or a ``pydantic_ai.messages.ToolCallPart``;
    * a list of these: several calls in one completion;
    * a ``pydantic_ai.messages.ModelResponse``: as it is, with its own usage and cost;
    * an exception: raised, every time that the position is asked;
    * a function of the messages (``list[ModelMessage]``): called, every time; it gives one of the above, or raises.

    A completion made from a text or from calls counts 10 input and 5 output tokens and has no price; ids of its
    calls are ``call-<item>-<index>``. A request beyond the script's end fails, and is not retried::

        ScriptedModel([("search", {"q": "x"}), [{"tool": "note"}, ("mail", {"to": "a@b.c"})], "Done."])

    Args:
        script: The items.
        name: The model's name; its identity for the version gate is ``function:<name>``.

    Attributes:
        calls: How often each position was asked in this process, position -> count.
    """

    def __init__(self, script: Sequence[Item], *, name: str = "scripted") -> None:
        super().__init__(self._answer, model_name=name)
        self.script = tuple(script)
        self.calls: Counter[int] = Counter()

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        position = sum(isinstance(message, ModelResponse) for message in messages)
        self.calls[position] += 1
        if position >= len(self.script):
            message = (
                f"the script of model {self.model_name!r} has {len(self.script)} items and was asked for response "
                f"{position + 1}: end the script with a text, or add an item"
            )
            raise UserError(message)
        item = self.script[position]
        if callable(item):
            item = item(messages)
        return _response(item, position)


def _response(item: object, position: int) -> ModelResponse:
    if isinstance(item, Exception):
        raise item
    if isinstance(item, ModelResponse):
        # FunctionModel writes into what it is given: a script's own object stays as it was.
        parts = [_named(one, position, index) for index, one in enumerate(item.parts)]
        return replace(item, parts=parts)
    answered: list[ModelResponsePart] = [TextPart(item)] if isinstance(item, str) else [*_calls(item, position)]
    return ModelResponse(parts=answered, usage=RequestUsage(input_tokens=10, output_tokens=5), timestamp=_THEN)


PartT = TypeVar("PartT", bound=ModelResponsePart)


def _named(part: PartT, position: int, index: int) -> PartT:
    """Give a tool call an id made from its place, unless the script says one (pydantic-ai's default is random)."""
    if isinstance(part, ToolCallPart) and part.tool_call_id.startswith("pyd_ai_"):
        return replace(part, tool_call_id=f"call-{position}-{index}")
    return part


def _calls(item: object, position: int) -> list[ToolCallPart]:
    """Read one tool call, or a list of them; ids are made from the position."""
    single = not isinstance(item, Sequence) or (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str))  # noqa: PLR2004 - (tool, arguments)
    several: Sequence[Any] = [item] if single or not isinstance(item, Sequence) else item
    return [_call(one, position, index) for index, one in enumerate(several)]


def _call(item: object, position: int, index: int) -> ToolCallPart:
    match item:
        case ToolCallPart():
            return _named(item, position, index)
        case (str() as tool, Mapping() as arguments):
            return ToolCallPart(tool, dict(arguments), f"call-{position}-{index}")
        case {"tool": str() as tool, "args": Mapping() as arguments}:
            return ToolCallPart(tool, dict(arguments), f"call-{position}-{index}")
        case {"tool": str() as tool, **others} if not others:
            return ToolCallPart(tool, {}, f"call-{position}-{index}")
        case _:
            message = (
                f"item {position} of the script is {item!r}: write a text, ('tool', {{arguments}}), "
                "{'tool': ..., 'args': {...}}, a ToolCallPart, a list of calls, a ModelResponse, an exception, "
                "or a function of the messages"
            )
            raise UserError(message)
