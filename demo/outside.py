"""How an app reaches the demo's world: its model, and a client of the ticket system for its tools."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from demo.world import ATTEMPT_HEADER, PID_HEADER

Json = Any
URL_VARIABLE: Final = "DEMO_WORLD_URL"


class Outside:
    """The ticket system's HTTP interface."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def post(self, collection: str, key: str, body: Mapping[str, Json], attempt: int = 0) -> Json:
        """Make a resource; the same key again gives the first one again."""
        headers = {"Idempotency-Key": key, PID_HEADER: str(os.getpid()), ATTEMPT_HEADER: str(attempt)}
        async with self._session.post(f"/{collection}", json=body, headers=headers) as response:
            response.raise_for_status()
            return await response.json()

    async def find(self, collection: str, key: str) -> Json | None:
        """Give the resource that was made for a key, None if there is none."""
        async with self._session.get(f"/{collection}", params={"key": key}) as response:
            response.raise_for_status()
            found: list[Json] = await response.json()
            return found[0] if found else None

    async def search(self, query: str) -> list[str]:
        """Give what is known about something."""
        async with self._session.get("/search", params={"q": query}) as response:
            response.raise_for_status()
            found: list[str] = await response.json()
            return found


@asynccontextmanager
async def outside(role: str) -> AsyncIterator[Outside]:
    """Give a client of the ticket system, for the tools of an executor and the lookups of a reconciler."""
    # No time-out here: the tool's own ends the call.
    timeout = ClientTimeout(total=None)
    agent = {"User-Agent": f"runfold-demo {role}"}
    async with ClientSession(os.environ[URL_VARIABLE], timeout=timeout, headers=agent) as session:
        yield Outside(session)


def model(name: str = "gpt-5-mini") -> OpenAIChatModel:
    """Give the world's model: OpenAI's client, talking to the demo's server. Retries are Runfold's, and logged."""
    url = os.environ.get(URL_VARIABLE, "http://127.0.0.1:9")
    headers = {PID_HEADER: str(os.getpid())}
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=headers)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
