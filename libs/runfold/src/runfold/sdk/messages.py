"""The transcript as pydantic-ai's messages, and a completion as bytes. Nothing that a provider said is left out."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import from_json

from runfold.core.errors import UnknownRecord
from runfold.core.state import EntryKind
from runfold.ports.agents import Message

MESSAGE_FORMAT = "pydantic-ai.messages.2"
_CACHE_BYTES = 64 * 1024 * 1024
_Piece = ModelResponse | ModelRequestPart
_THEN = datetime(1970, 1, 1, tzinfo=UTC)
"""pydantic-ai stamps what it builds with the present; a rebuilt transcript must be the same every time."""

# Writes what ``ModelMessagesTypeAdapter`` writes, in half the time: it does not look for a request's parts too.
_RESPONSES = TypeAdapter(
    list[ModelResponse], config=ConfigDict(defer_build=True, ser_json_bytes="base64", val_json_bytes="base64")
)


def encode_response(response: ModelResponse) -> bytes:
    """Serialise one completion, in ``MESSAGE_FORMAT``: a JSON list of one message."""
    return _RESPONSES.dump_json([response])


def decode_response(data: bytes, message_format: str = MESSAGE_FORMAT) -> ModelResponse:
    """Read one completion back.

    Raises:
        UnknownRecord: Another format, or bytes that this pydantic-ai does not understand.
    """
    if message_format != MESSAGE_FORMAT:
        message = f"message format {message_format!r} is not known to this code, which writes {MESSAGE_FORMAT!r}"
        raise UnknownRecord(message)
    try:
        found = ModelMessagesTypeAdapter.validate_json(data)
    except ValidationError as error:
        message = f"a completion cannot be read as {MESSAGE_FORMAT!r}: {error.error_count()} errors"
        raise UnknownRecord(message) from error
    if len(found) != 1 or not isinstance(found[0], ModelResponse):
        message = f"a completion in {MESSAGE_FORMAT!r} is a list of one response, not of {len(found)} messages"
        raise UnknownRecord(message)
    return found[0]


class Transcripts:
    """Builds messages from transcripts; keeps what it has parsed of each run, so that a step costs only what is new.

    Of runs in memory only (``forget``), and of those used last, up to a number of source bytes; the parsed objects take
    some four times as much.
    """

    def __init__(self, max_bytes: int = _CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._runs: OrderedDict[str, list[tuple[Message, _Piece]]] = OrderedDict()

    def build(self, run_id: str, entries: Iterable[Message], instructions: str) -> list[ModelMessage]:
        """Make the messages of a request; the parsed parts are shared between calls and must not be changed.

        Consecutive tool results, and a user message behind them, make one request, as pydantic-ai's own loop does.

        Raises:
            UnknownRecord: A completion that this code cannot read.
        """
        built: list[ModelMessage] = []
        parts: list[ModelRequestPart] = []
        for piece in self._pieces(run_id, entries):
            if isinstance(piece, ModelResponse):
                if parts:
                    built.append(_request(parts, instructions))
                built.append(piece)
                parts = []
            else:
                parts.append(piece)
        if parts:
            built.append(_request(parts, instructions))
        return built

    def forget(self, run_id: str) -> None:
        """Drop what was parsed of a run."""
        for entry, _ in self._runs.pop(run_id, ()):
            self._bytes -= len(entry.data)

    def _pieces(self, run_id: str, entries: Iterable[Message]) -> list[_Piece]:
        """Parse what is not parsed yet. What a lost append had in its place is parsed again."""
        known = self._runs.setdefault(run_id, [])
        self._runs.move_to_end(run_id)
        pieces: list[_Piece] = []
        for index, entry in enumerate(entries):
            if index == len(known):
                known.append((entry, _parse(entry)))
                self._bytes += len(entry.data)
            elif known[index][0] is not entry and known[index][0] != entry:
                self._bytes += len(entry.data) - len(known[index][0].data)
                known[index] = (entry, _parse(entry))
            pieces.append(known[index][1])
        while self._bytes > self._max_bytes and self._runs:
            self.forget(next(iter(self._runs)))
        return pieces


def _request(parts: Sequence[ModelRequestPart], instructions: str) -> ModelRequest:
    return ModelRequest(parts=list(parts), timestamp=_THEN, instructions=instructions or None)


def _parse(entry: Message) -> _Piece:
    match entry.kind:
        case EntryKind.RESPONSE:
            return decode_response(entry.data, entry.message_format)
        case EntryKind.USER:
            return UserPromptPart(content=_text(entry.data), timestamp=_THEN)
        case EntryKind.TOOL:
            return ToolReturnPart(
                tool_name=entry.tool,
                content=_value(entry.data),
                tool_call_id=entry.tool_call_id,
                timestamp=_THEN,
                outcome=cast("Any", entry.outcome or "success"),
            )


def _value(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON as the standard library does it; where pydantic's parser gives up (deep nesting), that one reads it."""
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)


def _text(data: bytes) -> str:
    value = _value(data)
    if not isinstance(value, str):
        message = f"a user message is a JSON string, not {type(value).__name__}"
        raise UnknownRecord(message)
    return value
