"""Entries of a transcript, as the runtime hands them to an agent."""

from __future__ import annotations

import json

from pydantic_ai.messages import ModelResponse

from runfold.core.state import EntryKind
from runfold.ports.agents import Message
from runfold.sdk.messages import MESSAGE_FORMAT, encode_response


def user(text: str) -> Message:
    """Say something."""
    return Message(EntryKind.USER, json.dumps(text).encode())


def responded(response: ModelResponse) -> Message:
    """Put a completion into the transcript."""
    return Message(EntryKind.RESPONSE, encode_response(response), message_format=MESSAGE_FORMAT)


def returned(call_id: str, value: object, outcome: str = "success") -> Message:
    """Put a result into the transcript."""
    return Message(EntryKind.TOOL, json.dumps(value).encode(), call_id, "create", outcome)
