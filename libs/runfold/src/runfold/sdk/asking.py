"""One model call: pydantic-ai's ``Model`` asked once, and what its answer or its error means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UserError,
)
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse, ModelResponsePart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError

from runfold.ports.agents import ModelAnswer, ModelFailure
from runfold.sdk.messages import MESSAGE_FORMAT, encode_response

_RETRYABLE_STATUS = frozenset({408, 409, 429})
_SERVER_ERROR = 500
_MAX_ERROR = 2000
_NANO = Decimal(10**9)


async def ask(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    tools: Sequence[ToolDefinition],
    instructions: str,
    timeout_s: float,
) -> ModelAnswer | ModelFailure:
    """Ask once, as pydantic-ai's own loop does: ``prepare_messages``, then ``request``.

    Args:
        model: Asked as it is; its own retries are the author's to switch off.
        messages: Not changed.
        settings: The agent's; ``request_timeout`` shortens the time-out.
        tools: Function tools offered.
        instructions: Empty: none.
        timeout_s: Seconds for the whole request.

    Returns:
        The completion, or a failure for whatever exception; only a cancellation is raised.
    """
    parameters = ModelRequestParameters(
        function_tools=list(tools),
        instruction_parts=[InstructionPart(content=instructions)] if instructions else None,
    )
    limit = min(timeout_s, (settings or {}).get("request_timeout", timeout_s))
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            prepared = model.prepare_messages(messages, parameters)
            response = await model.request(prepared, _without_retries(model, settings), parameters)
    except Exception as error:  # noqa: BLE001 - every error of a provider is an answer
        if isinstance(error, TimeoutError) and scope.expired():
            return ModelFailure(f"the model did not answer within {limit:g} s", retryable=True)
        return failure(error)
    if response.state != "complete":
        return ModelFailure(
            f"the model's response is {response.state!r}, which asks for a continuation: Runfold does not continue "
            "responses; switch the provider's background or pausing mode off",
            retryable=False,
        )
    try:
        return answer(response, model)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        return ModelFailure(f"the model's response cannot be recorded: {error}"[:_MAX_ERROR], retryable=True)


def _without_retries(model: Model, settings: ModelSettings | None) -> ModelSettings | None:
    """Switch the provider SDK's own retries off unless the author chose a number: ours are logged, those are not."""
    chosen = {**(model.settings or {}), **(settings or {})}
    if "max_retries" in chosen or "max_retries" in model.unsupported_settings:
        return settings
    return merge_model_settings(settings, ModelSettings(max_retries=0))


def answer(response: ModelResponse, model: Model) -> ModelAnswer:
    """Make the record of a completion."""
    response = _with_unique_ids(response)
    return ModelAnswer(
        message=encode_response(response),
        message_format=MESSAGE_FORMAT,
        tool_calls=tuple((call.tool_call_id, call.tool_name, _own_arguments(call)) for call in response.tool_calls),
        finish_reason=response.finish_reason,
        usage=_usage(response),
        cost_nano_usd=_cost(response),
        model=response.model_name or model.model_name,
    )


def failure(error: Exception) -> ModelFailure:
    """Say what an exception of a provider means for the next attempt."""
    if isinstance(error, FallbackExceptionGroup):
        each = [failure(inner) for inner in error.exceptions]
        text = "; ".join(one.error for one in each)
        return ModelFailure(text[:_MAX_ERROR], any(one.retryable for one in each), _soonest(each))
    text = f"{type(error).__name__}: {error}"[:_MAX_ERROR]
    after = error.retry_after if isinstance(error, ModelAPIError) else None
    return ModelFailure(text, _retryable(error), after)


def _retryable(error: Exception) -> bool:
    if isinstance(error, ModelQuotaExceededError | UserError | ContentFilterError):
        return False
    if isinstance(error, ModelHTTPError):
        if error.provider_retry_hint is not None:
            return error.provider_retry_hint
        return error.status_code in _RETRYABLE_STATUS or error.status_code >= _SERVER_ERROR
    return not isinstance(error, ModelRequestRejectedError)


def _soonest(failures: Sequence[ModelFailure]) -> float | None:
    waits = [one.retry_after for one in failures if one.retryable and one.retry_after is not None]
    return min(waits, default=None)


def _with_unique_ids(response: ModelResponse) -> ModelResponse:
    """Give every tool call an id of its own, made from its place, where the provider gave none or repeated one."""
    seen: set[str] = set()
    parts: list[ModelResponsePart] = []
    changed = False
    for index, part in enumerate(response.parts):
        kept: ModelResponsePart = part
        if isinstance(part, ToolCallPart):
            wanted = part.tool_call_id or f"call-{index}"
            while wanted in seen:
                wanted = f"{wanted}-{index}"
            seen.add(wanted)
            if wanted != part.tool_call_id:
                kept, changed = replace(part, tool_call_id=wanted), True
        parts.append(kept)
    return replace(response, parts=parts) if changed else response


def _own_arguments(call: ToolCallPart) -> bytes:
    """Give the model's own text, malformed or not: validation has to see it."""
    return call.args.encode() if isinstance(call.args, str) else call.args_as_json_str().encode()


def _usage(response: ModelResponse) -> dict[str, int]:
    """All counts by name, whole numbers above 0; the provider's ``details`` stand beside the common ones."""
    counts: dict[str, int] = {"input_tokens": 0, "output_tokens": 0}
    known: dict[str, Any] = {**response.usage.details, **vars(response.usage)}
    return counts | {name: known[name] for name in sorted(known) if type(known[name]) is int and known[name] > 0}


def _cost(response: ModelResponse) -> int | None:
    """The price in billionths of a dollar; None where nobody knows it."""
    price = response.usage.cost
    if price is None and response.model_name and not response.usage.unmeasured_requests:
        try:
            price = response.cost().total_price
        except (LookupError, ValueError, AssertionError, TypeError):
            return None
    if price is None:
        return None
    return int((price * _NANO).to_integral_value(ROUND_HALF_EVEN))
