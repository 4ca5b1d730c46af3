"""The example of docs/recovery.md, run on a real Postgres by the runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.adapters.postgres.effects import open_effects
from runfold.core.events import Outcome
from runfold.core.policy import tool_backoff
from runfold.ports.agents import Invocation, Returned
from runfold.testing import ScriptedModel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"


def test_retries_and_their_pauses_are_what_the_page_says() -> None:
    @tool(recovery=Recovery.KEYED)
    async def send(ctx: ToolContext[None]) -> None: ...

    first, second, *_, longest = [tool_backoff(retries, 1.0) for retries in range(20)]
    text = PAGE.read_text()
    assert f"`retries` is {send.spec.retries} unless" in text
    assert f"of up to {first:g} s, then {second:g} s, twice as long each time, {longest:g} s at most" in text


@pytest.mark.integration
async def test_the_transactional_example_books_once(postgres_dsn: str, postgres_schema: str) -> None:
    """However often its key is executed."""
    [source] = re.findall(r"```python\n(@tool\(recovery=Recovery.TRANSACTIONAL\).*?)```", PAGE.read_text(), re.DOTALL)
    source = source.replace("into public.bookings", f"into {postgres_schema}.bookings")
    names: dict[str, Any] = {"tool": tool, "Recovery": Recovery, "ToolContext": ToolContext}
    exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    app = App([Agent("a", model=ScriptedModel(["done"]), instructions="", tools=[names["book"]])])
    call = Invocation("r", "a", 2, 1, "book", "c", "r:2", b'{"account":"x","amount":3}', {}, 10.0)
    table = await open_effects(postgres_dsn, postgres_schema, make=True)
    async with await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as observer:
        await observer.execute(f"create table {postgres_schema}.bookings (account text, amount int)")
        async with app.running("executor", revision="r", effects=table) as agents:
            agent = agents.get("a")
            assert agent is not None
            answers = [await agent.execute(call) for _ in range(3)]
        rows = await (await observer.execute(f"select * from {postgres_schema}.bookings")).fetchall()  # noqa: S608
    await table.close_pools()
    assert rows == [("x", 3)]
    assert answers[0] == Returned(Outcome.SUCCESS, b'"3 booked on x"')
    assert [isinstance(one, Returned) and one.from_table for one in answers] == [False, True, True]
