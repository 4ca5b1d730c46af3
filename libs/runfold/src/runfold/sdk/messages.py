"""The transcript as pydantic-ai's messages, and a completion as bytes. Nothing that a provider said is left out."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)

from runfold.core.errors import UnknownRecord
from runfold.core.state import EntryKind
from runfold.ports.agents import Message

MESSAGE_FORMAT = "pydantic-ai.messages.2"
_CACHE_BYTES = 64 * 1024 * 1024
_THEN = datetime(1970, 1, 1, tzinfo=UTC)
"""pydantic-ai stamps what it builds with the present; a rebuilt transcript must be the same every time."""


def encode_response(response: ModelResponse) -> bytes:
    """Serialise one completion, in ``MESSAGE_FORMAT``: a JSON list of one message."""
    return ModelMessagesTypeAdapter.dump_json([response])


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
    """Builds messages from transcripts; keeps what it has parsed, so that a step costs only what is new in it.

    The least recently used is dropped above a number of source bytes. The key is the entry itself: its bytes hash
    once and are usually the same object at every step.
    """

    def __init__(self, max_bytes: int = _CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._parsed: OrderedDict[Message, ModelResponse | ModelRequestPart] = OrderedDict()

    def build(self, entries: Iterable[Message], instructions: str) -> list[ModelMessage]:
        """Make the messages of a request; the parsed parts are shared between calls and must not be changed.

        Consecutive tool results, and a user message behind them, make one request, as pydantic-ai's own loop does.

        Raises:
            UnknownRecord: A completion that this code cannot read.
        """
        built: list[ModelMessage] = []
        parts: list[ModelRequestPart] = []
        for entry in entries:
            piece = self._piece(entry)
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

    def _piece(self, entry: Message) -> ModelResponse | ModelRequestPart:
        known = self._parsed.get(entry)
        if known is not None:
            self._parsed.move_to_end(entry)
            return known
        piece = _parse(entry)
        self._parsed[entry] = piece
        self._bytes += len(entry.data)
        while self._bytes > self._max_bytes and len(self._parsed) > 1:
            oldest, _ = self._parsed.popitem(last=False)
            self._bytes -= len(oldest.data)
        return piece


def _request(parts: Sequence[ModelRequestPart], instructions: str) -> ModelRequest:
    return ModelRequest(parts=list(parts), timestamp=_THEN, instructions=instructions or None)


def _parse(entry: Message) -> ModelResponse | ModelRequestPart:
    match entry.kind:
        case EntryKind.RESPONSE:
            return decode_response(entry.data, entry.message_format)
        case EntryKind.USER:
            return UserPromptPart(content=_text(entry.data), timestamp=_THEN)
        case EntryKind.TOOL:
            return ToolReturnPart(
                tool_name=entry.tool,
                content=json.loads(entry.data),
                tool_call_id=entry.tool_call_id,
                timestamp=_THEN,
                outcome=cast("Any", entry.outcome or "success"),
            )


def _text(data: bytes) -> str:
    value = json.loads(data)
    if not isinstance(value, str):
        message = f"a user message is a JSON string, not {type(value).__name__}"
        raise UnknownRecord(message)
    return value
