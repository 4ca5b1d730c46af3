"""A real provider's adapter (OpenAI's chat API) on a transport in memory: what is sent, recorded and retried."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from runfold import Agent, App, Recovery, tool
from runfold.core.state import EntryKind
from runfold.ports.agents import Message, ModelAnswer, ModelFailure


@tool(recovery=Recovery.KEYED)
async def create(title: str) -> str:
    """Open a ticket."""
    return title


def completion(message: dict[str, object]) -> httpx2.Response:
    """Answer as the API does."""
    choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop", "message": message}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}
    return httpx2.Response(200, json={**body, "usage": usage})


def app(answer: Callable[[httpx2.Request], httpx2.Response]) -> App:
    """Make an app whose model is served by ``answer``."""
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    provider = OpenAIProvider(api_key="unused", base_url="https://api.openai.com/v1", http_client=client)
    return App(
        [Agent("one", model=OpenAIChatModel("gpt-4o", provider=provider), instructions="Brief.", tools=[create])]
    )


async def test_a_turn_through_a_real_adapter() -> None:
    """Instructions, tools and results reach the wire; the answer is recorded with its calls and its price."""
    sent: list[dict[str, object]] = []
    call = {"id": "call_1", "type": "function", "function": {"name": "create", "arguments": '{"title":"x"}'}}

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        if len(sent) == 1:
            return completion({"role": "assistant", "content": None, "tool_calls": [call]})
        return completion({"role": "assistant", "content": "done"})

    transcript = [Message(EntryKind.USER, b'"go"')]
    async with app(answer).running("executor", revision="r1") as agents:
        agent = agents.get("one")
        assert agent is not None
        assert agent.version.model == "openai:gpt-4o"
        asked = await agent.ask_model("run-1", transcript, 5.0)
        assert isinstance(asked, ModelAnswer)
        assert asked.tool_calls == (("call_1", "create", b'{"title":"x"}'),)
        assert (asked.usage["input_tokens"], asked.usage["output_tokens"]) == (1000, 100)
        assert asked.cost_nano_usd == 3_500_000
        transcript.append(Message(EntryKind.RESPONSE, asked.message, message_format=asked.message_format))
        transcript.append(Message(EntryKind.TOOL, b'"T-1"', "call_1", "create", "success"))
        done = await agent.ask_model("run-1", transcript, 5.0)
        assert isinstance(done, ModelAnswer)
        assert agent.output(done.message, done.message_format) == b'"done"'
    assert sent[1]["messages"] == [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "T-1"},
    ]


async def test_the_providers_sdk_does_not_retry_behind_our_back() -> None:
    """One request, one answer: Retry-After is handed to the runtime, which logs what it does."""
    count: list[int] = []

    def limited(_: httpx2.Request) -> httpx2.Response:
        count.append(1)
        return httpx2.Response(429, headers={"retry-after": "7"}, json={"error": {"message": "slow down"}})

    async with app(limited).running("executor", revision="r1") as agents:
        agent = agents.get("one")
        assert agent is not None
        failed = await agent.ask_model("run-1", [Message(EntryKind.USER, b'"go"')], 5.0)
    assert isinstance(failed, ModelFailure)
    assert (failed.retryable, failed.retry_after, len(count)) == (True, 7.0, 1)
