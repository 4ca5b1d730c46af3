"""One model call: messages built without loss, answers recorded, errors judged."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    NativeToolSearchCallPart,
    NativeToolSearchReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.core.errors import UnknownRecord
from runfold.core.state import EntryKind
from runfold.ports.agents import Message, ModelAnswer, ModelFailure, RunningAgent
from runfold.sdk.asking import failure
from runfold.sdk.messages import MESSAGE_FORMAT, decode_response, encode_response
from runfold.testing import ScriptedModel
from tests.unit.sdk.transcript import responded, returned, user

RICH = ModelResponse(
    parts=[
        ThinkingPart("hm", id="rs_1", signature="c2ln", provider_name="openai", provider_details={"raw": [1, "x"]}),
        NativeToolCallPart("web_search", {"q": "x"}, "n-1", provider_name="openai", provider_details={"status": "ok"}),
        NativeToolReturnPart("web_search", {"hits": 2}, "n-1", provider_name="openai"),
        TextPart("first ", id="msg_1"),
        TextPart("answer", provider_name="openai", provider_details={"annotations": [{"url": "u"}]}),
        ToolCallPart(
            "create", '{"title": "x"}', "call_9", id="fc_1", provider_name="openai", provider_details={"k": 1}
        ),
    ],
    usage=RequestUsage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=40,
        details={"reasoning_tokens": 7},
        cost=Decimal("0.0012345678"),
    ),
    model_name="gpt-5-2026",
    timestamp=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    provider_name="openai",
    provider_url="https://models.example/v1",
    provider_details={"finish_reason": "tool_calls", "nested": {"a": [None, True]}},
    provider_response_id="resp_1",
    finish_reason="tool_call",
    metadata={"mine": 1},
)


@tool(recovery=Recovery.LOOKUP, sequential=True)
async def create(ctx: ToolContext[None], title: str, priority: int = 3) -> str:
    """Open a ticket.

    Args:
        title: What it is about.
    """
    return f"{ctx.run_id}{title}{priority}"


@create.lookup
async def find(title: str, priority: int = 3) -> str:
    """Find a ticket."""
    return f"{title}{priority}"


@asynccontextmanager
async def running(model: Any, **options: Any) -> AsyncIterator[RunningAgent]:
    """Run an app of one agent with one tool."""
    one = Agent("one", model=model, tools=[create], **{"instructions": "Be brief.", **options})
    async with App([one]).running("executor", revision="r1") as agents:
        found = agents.get("one")
        assert found is not None
        assert agents.revision == found.version.revision == "r1"
        yield found


def answering(
    *responses: ModelResponse | Exception, seen: list[tuple[list[ModelMessage], AgentInfo]] | None = None
) -> FunctionModel:
    """Make a model that answers in turn."""
    rest = list(responses)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append((messages, info))
        item = rest.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    return FunctionModel(answer, model_name="gpt-5-2026")


def test_nothing_of_a_completion_is_lost() -> None:
    """Thinking, signatures, provider details, native tools, usage, cost: all comes back."""
    assert decode_response(encode_response(RICH)) == RICH
    assert encode_response(decode_response(encode_response(RICH))) == encode_response(RICH)


def test_a_completion_is_recorded_in_pydantic_ais_own_form() -> None:
    """Byte for byte: whoever reads the log with ``ModelMessagesTypeAdapter`` finds what it would have written."""
    found = NativeToolSearchReturnPart(content={"discovered_tools": [{"name": "create"}]}, tool_call_id="n-2")
    pictured = ModelResponse(
        [
            FilePart(BinaryContent(b"\xff\xfe?>", media_type="image/png")),
            NativeToolSearchCallPart(args={"queries": ["x"]}, tool_call_id="n-2"),
            found,
            ToolCallPart("create", {"title": "\u20ac", "priority": math.nan}, "call-1"),
        ],
        provider_details={"raw": b"\xff\xfe"},
    )
    for response in (RICH, pictured, ModelResponse([])):
        assert encode_response(response) == ModelMessagesTypeAdapter.dump_json([response])


async def test_a_completion_is_recorded_with_calls_usage_and_cost() -> None:
    """Counts by name, the provider's details beside them; money in billionths of a dollar."""
    async with running(answering(RICH)) as agent:
        answer = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(answer, ModelAnswer)
        assert answer.message_format == MESSAGE_FORMAT
        assert decode_response(answer.message, answer.message_format) == RICH
        assert answer.tool_calls == (("call_9", "create", b'{"title": "x"}'),)
        assert answer.finish_reason == "tool_call"
        assert answer.usage == {
            "input_tokens": 100,
            "output_tokens": 20,
            "cache_read_tokens": 40,
            "reasoning_tokens": 7,
        }
        assert answer.cost_nano_usd == 1_234_568
        assert answer.model == "gpt-5-2026"
        assert agent.output(answer.message, answer.message_format) == b'"first answer"'
        with pytest.raises(UnknownRecord, match=r"message format 'pydantic-ai\.messages\.9' is not known"):
            agent.output(answer.message, "pydantic-ai.messages.9")
        with pytest.raises(UnknownRecord, match="cannot be read"):
            agent.output(b"[{}]", MESSAGE_FORMAT)


async def test_a_known_model_is_priced_and_an_unknown_one_is_not() -> None:
    """By genai-prices, from the counts; an unknown price is not zero."""
    known = ModelResponse(
        [TextPart("x")], usage=RequestUsage(input_tokens=1_000_000), model_name="gpt-4o", provider_name="openai"
    )
    model = answering(known, ModelResponse([TextPart("x")], usage=RequestUsage(input_tokens=5)))
    model._model_name = "gpt-4o"
    async with running(model) as agent:
        priced = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(priced, ModelAnswer)
        assert priced.cost_nano_usd == 2_500_000_000
    async with running(answering(ModelResponse([TextPart("x")], usage=RequestUsage(input_tokens=5)))) as agent:
        free = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(free, ModelAnswer)
        assert free.cost_nano_usd is None


async def test_the_model_is_sent_the_transcript_the_tools_and_the_instructions() -> None:
    """Results of one turn make one request, each with how it ended; nothing depends on the present time."""
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []
    first = ModelResponse([ToolCallPart("create", {"title": t}, t) for t in ("a", "b", "c", "d")], model_name="m")
    done = ModelResponse([TextPart("done")])
    async with running(answering(done, done, seen=seen), model_settings=ModelSettings(temperature=0.1)) as agent:
        transcript = [
            user("go"),
            responded(first),
            returned("a", {"id": 1}),
            returned("b", "no such", "failed"),
            returned("c", "rejected by dana", "denied"),
            returned("d", [{"msg": "Field required", "type": "missing", "loc": ["title"], "input": 1}], "retried"),
        ]
        assert isinstance(await agent.ask_model("run-1", transcript, 5.0), ModelAnswer)
        assert isinstance(await agent.ask_model("run-1", transcript, 5.0), ModelAnswer)
        assert json.loads(agent.params) == {"model": "function:gpt-5-2026", "settings": {"temperature": 0.1}}
    (messages, info), (again, _) = seen
    assert messages == again
    opening, response, results = messages
    assert isinstance(opening, ModelRequest)
    assert isinstance(results, ModelRequest)
    assert response == first
    assert [part.content for part in opening.parts if isinstance(part, UserPromptPart)] == ["go"]
    parts = [part for part in results.parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_call_id, part.outcome) for part in parts] == [
        ("a", "success"),
        ("b", "failed"),
        ("c", "denied"),
        ("d", "retried"),
    ]
    assert parts[0].content == {"id": 1}
    assert info.instructions == "Be brief."
    assert info.model_settings == {"temperature": 0.1, "max_retries": 0}
    sent = info.function_tools[0]
    assert (sent.name, sent.description, sent.sequential) == ("create", "Open a ticket.", False)
    assert sent.parameters_json_schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "What it is about."},
            "priority": {"type": "integer", "default": 3},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


async def test_the_authors_number_of_provider_retries_is_kept() -> None:
    """Otherwise the provider's SDK is told to leave retrying to us."""
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []
    model = answering(ModelResponse([TextPart("x")]), seen=seen)
    async with running(model, model_settings=ModelSettings(max_retries=4)) as agent:
        await agent.ask_model("run-1", [user("go")], 5.0)
    assert seen[0][1].model_settings == {"max_retries": 4}


async def test_tool_call_ids_are_unique_within_an_answer_and_made_from_their_place() -> None:
    """In the record and in the message alike; malformed arguments are kept as the model wrote them."""
    calls = [
        ToolCallPart("create", "{bad", "x"),
        ToolCallPart("create", {"title": 1}, "x"),
        ToolCallPart("create", None, ""),
    ]
    async with running(answering(ModelResponse([TextPart("so"), *calls]))) as agent:
        answer = await agent.ask_model("run-1", [user("go")], 5.0)
    assert isinstance(answer, ModelAnswer)
    assert answer.tool_calls == (
        ("x", "create", b"{bad"),
        ("x-2", "create", b'{"title":1}'),
        ("call-3", "create", b"{}"),
    )
    assert [part.tool_call_id for part in decode_response(answer.message).tool_calls] == ["x", "x-2", "call-3"]


def http(status: int, **options: Any) -> ModelHTTPError:
    """Make a provider's HTTP error."""
    return ModelHTTPError(status, "m", {"error": "said"}, **options)


@pytest.mark.parametrize(
    ("error", "retryable", "after"),
    [
        (http(408), True, None),
        (http(409), True, None),
        (http(429, headers={"retry-after": "7"}), True, 7.0),
        (http(500), True, None),
        (http(529), True, None),
        (http(400), False, None),
        (http(401), False, None),
        (http(404), False, None),
        (http(429, headers={"x-should-retry": "false"}), False, None),
        (ModelHTTPError.for_category(category=ModelQuotaExceededError, status_code=429, model_name="m"), False, None),
        (ModelConnectionError("m", "refused"), True, None),
        (ModelAPIError("m", "something", retry_after=3.0), True, 3.0),
        (ModelRequestRejectedError("m", "too long"), False, None),
        (UserError("set a key"), False, None),
        (UnexpectedModelBehavior("malformed"), True, None),
        (ConnectionResetError("reset"), True, None),
        (KeyError("choices"), True, None),
        (FallbackExceptionGroup("all", [http(400), http(503, headers={"retry-after": "2"})]), True, 2.0),
        (FallbackExceptionGroup("all", [http(400), http(401)]), False, None),
    ],
)
def test_what_a_providers_error_means(error: Exception, retryable: bool, after: float | None) -> None:  # noqa: FBT001 - a parameter
    """Retryable or not, and after how long; the text names the type and is bounded."""
    judged = failure(error)
    assert (judged.retryable, judged.retry_after) == (retryable, after)
    assert judged.error
    assert len(failure(ValueError("x" * 10_000)).error) == 2000


async def test_errors_and_time_outs_are_answers_and_a_cancellation_is_not() -> None:
    """Nothing of a provider is raised at the runtime."""
    entered = asyncio.Event()

    async def hang(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running(answering(http(503))) as agent:
        failed = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(failed, ModelFailure)
        assert failed.retryable
        assert "503" in failed.error
    async with running(FunctionModel(hang)) as agent:
        late = await agent.ask_model("run-1", [user("go")], 0.01)
        assert late == ModelFailure("the model did not answer within 0.01 s", retryable=True)
        task = asyncio.create_task(agent.ask_model("run-1", [user("go")], 5.0))
        entered.clear()
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with running(FunctionModel(hang), model_settings=ModelSettings(request_timeout=0.02)) as agent:
        short = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(short, ModelFailure)
        assert "0.02 s" in short.error
    paused = ModelResponse([TextPart("x")], state="suspended")
    async with running(answering(paused)) as agent:
        refused = await agent.ask_model("run-1", [user("go")], 5.0)
        assert isinstance(refused, ModelFailure)
        assert not refused.retryable


@pytest.mark.parametrize("name", ["nobody:gpt-0", "gpt", "openai:gpt-5"])
async def test_a_model_that_cannot_be_resolved_is_a_failure_with_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app loads; the run says what is wrong (a typo, a missing package, a missing key)."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with running(name) as agent:
        assert agent.version.model == name
        failed = await agent.ask_model("run-1", [user("go")], 5.0)
    assert isinstance(failed, ModelFailure)
    assert not failed.retryable
    assert failed.error.startswith(f"model '{name}' of agent 'one' cannot be used: ")


async def test_a_completion_of_another_format_stops_the_run() -> None:
    """It is never skipped and never guessed at."""
    strange = Message(EntryKind.RESPONSE, b"[]", message_format="other.1")
    async with running(ScriptedModel(["x"])) as agent:
        with pytest.raises(UnknownRecord, match=r"message format 'other\.1'"):
            await agent.ask_model("run-1", [user("go"), strange], 5.0)


async def test_the_version_changes_exactly_with_its_part() -> None:
    """Instructions and settings: prompt. Schema, docstring, recovery, gate: tools. Header values: nothing."""

    def version(**options: Any) -> Any:
        async def read() -> Any:
            async with running(options.pop("model", ScriptedModel(["x"])), **options) as agent:
                return agent.version

        return read()

    base = await version()
    assert await version() == base
    assert base.model == "function:scripted"
    assert dict(base.tools) == {"create": create.signature()}
    prompt = await version(instructions="Be long.")
    assert (prompt.prompt_hash != base.prompt_hash, prompt.tools_hash) == (True, base.tools_hash)
    settings = await version(model_settings=ModelSettings(temperature=1))
    assert settings.prompt_hash != base.prompt_hash
    one = await version(model_settings=ModelSettings(extra_headers={"x-key": "secret"}))
    two = await version(model_settings=ModelSettings(extra_headers={"x-key": "rotated"}))
    assert one == two
    assert (await version(model=ScriptedModel(["x"], name="other"))).model == "function:other"
