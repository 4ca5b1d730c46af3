"""The agent of the measurements: what a run does is said by its input, a ``Plan`` as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from runfold import Agent, App, Recovery, ToolContext, tool

TIMES: Final = "BENCH_TIMES"
"""The folder that gets the times, a file for each executor; unset: none are kept, so that memory does not grow."""
_FOLDER: Final = os.environ.get(TIMES)
# CLOCK_MONOTONIC at the start of each step's body, by run. All processes of a machine share this clock.
_STARTS: Final[defaultdict[str, list[float]]] = defaultdict(list)


def _note(run_id: str) -> None:
    if _FOLDER:
        _STARTS[run_id].append(time.monotonic())


@tool(recovery=Recovery.RERUN, sequential=True)
async def noop(ctx: ToolContext[None]) -> int:
    """Do nothing."""
    _note(ctx.run_id)
    return 1


@tool(recovery=Recovery.RERUN, sequential=True)
async def fetch(ctx: ToolContext[None], size: int) -> str:
    """Give so many characters that no compression makes smaller than half."""
    _note(ctx.run_id)
    return os.urandom(size // 2 + 1).hex()[:size]


@tool(recovery=Recovery.RERUN, sequential=True, timeout=3600.0)
async def rest(ctx: ToolContext[None], ms: int) -> int:
    """Wait so many milliseconds."""
    _note(ctx.run_id)
    await asyncio.sleep(ms / 1000)
    return 1


@tool(recovery=Recovery.RERUN, sequential=True, timeout=3600.0)
def hold(ctx: ToolContext[None], ms: int) -> int:
    """Keep a thread for so many milliseconds."""
    _note(ctx.run_id)
    time.sleep(ms / 1000)
    return 1


@tool(recovery=Recovery.RERUN, needs_approval=True)
async def gate(_: ToolContext[None]) -> int:
    """Do nothing, once a person has agreed."""
    return 1


class _Planned(Model):
    """Asks for ``calls`` calls in each of ``turns`` completions, then for the last one, then says that it is done.

    A plain model: pydantic-ai's ``FunctionModel`` is for tests, and looks through all messages for what these may miss.
    """

    @property
    def model_name(self) -> str:
        """As it is recorded."""
        return "bench"

    @property
    def system(self) -> str:
        """As it is recorded."""
        return "bench"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002 - pydantic-ai's signature
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002
    ) -> ModelResponse:
        """Answer by the number of answers before."""
        plan = _plan(messages)
        position = sum(isinstance(message, ModelResponse) for message in messages)
        calls: list[tuple[str, dict[str, Any]]] = []
        if position < plan["turns"]:
            calls = [tuple(plan["call"])] * plan["calls"]
        elif position == plan["turns"] and plan["last"] is not None:
            calls = [tuple(plan["last"])]
        parts: list[ModelResponsePart] = [
            ToolCallPart(name, given, f"call-{position}-{index}") for index, (name, given) in enumerate(calls)
        ]
        usage = RequestUsage(input_tokens=10, output_tokens=5)
        return ModelResponse(parts=parts or [TextPart("done")], usage=usage, model_name=self.model_name)


def _plan(messages: list[ModelMessage]) -> dict[str, Any]:
    for part in messages[0].parts:
        if isinstance(part, UserPromptPart) and isinstance(part.content, str):
            plan: dict[str, Any] = json.loads(part.content)
            return plan
    raise ValueError("a run of this agent begins with a plan")


@asynccontextmanager
async def lifespan(role: str) -> AsyncIterator[None]:
    """Write down the times when the executor ends."""
    yield
    if role == "executor" and _FOLDER and _STARTS:
        file = Path(_FOLDER) / f"{os.getpid()}.json"
        await asyncio.to_thread(file.write_text, json.dumps(_STARTS), "utf-8")


app = App(
    [Agent("bench", model=_Planned(), instructions="", tools=[noop, fetch, rest, hold, gate])],
    lifespan=lifespan,
)
