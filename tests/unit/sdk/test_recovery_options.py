"""What an author may say about a downstream's memory, and what is refused at import, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from runfold import ABSENT, Agent, App, Recovery, ToolContext, tool
from runfold.adapters.memory import MemoryEffects, MemoryEffectsDatabase
from runfold.core.events import Outcome
from runfold.ports.agents import Begun, Invocation, NotStarted, NotThere, Returned, Unknown
from runfold.sdk.errors import DefinitionError
from runfold.testing import ScriptedModel


async def act(ctx: ToolContext[None], what: str) -> str:
    """Act."""
    return f"{what} {ctx.attempt}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recovery": Recovery.KEYED, "key_ttl": 0}, "key_ttl is in seconds, more than 0"),
        ({"recovery": Recovery.KEYED, "key_ttl": True}, "key_ttl is in seconds"),
        ({"recovery": Recovery.KEYED, "key_ttl": 60}, "must be longer than timeout"),
        ({"recovery": Recovery.MANUAL, "key_ttl": 3600}, "only KEYED and LOOKUP tools rely on"),
        ({"recovery": Recovery.KEYED, "key_ttl": 3600, "dedupe": True}, "forgets none"),
        ({"recovery": Recovery.LOOKUP, "settle": -1}, "settle is in seconds"),
        ({"recovery": Recovery.KEYED, "settle": 5}, "settle is about the lookup of a LOOKUP tool; keyed asks none"),
        ({"recovery": Recovery.LOOKUP, "settle": 50, "key_ttl": 100}, "timeout and settle together"),
        ({"recovery": Recovery.KEYED, "dedupe": 1}, "dedupe is True or False"),
        ({"recovery": Recovery.LOOKUP, "dedupe": True}, "its lookup asks the downstream itself"),
        ({"recovery": Recovery.MANUAL, "dedupe": True}, "with recovery=Recovery.KEYED a call that began"),
        ({"recovery": Recovery.TRANSACTIONAL, "dedupe": True}, "stand in the effects table already"),
        ({"recovery": Recovery.RERUN, "dedupe": True}, "a tool that only reads"),
    ],
)
def test_what_means_nothing_is_refused(options: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        tool(**options)(act)


def test_what_is_said_reaches_the_runtime() -> None:
    """In milliseconds, the lookup's own options too."""
    declared = tool(recovery=Recovery.LOOKUP, timeout=2.0, key_ttl=3600, settle=1.5)(act)

    @declared.lookup(timeout=0.5, tries=2)
    async def find(ctx: ToolContext[None], what: str) -> object:
        return ABSENT

    spec = declared.spec
    assert (spec.key_ttl_ms, spec.settle_ms, spec.dedupe) == (3_600_000, 1500, False)
    assert (spec.has_lookup, spec.lookup_timeout_ms, spec.lookup_tries) == (True, 500, 2)
    plain = tool(recovery=Recovery.LOOKUP)(act)
    assert plain.lookup(find) is find
    assert (plain.spec.lookup_timeout_ms, plain.spec.lookup_tries) == (None, 5)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"tries": 0}, {"tries": True}, {"timeout": "5"}])
def test_a_lookups_options_are_checked(options: Any) -> None:
    with pytest.raises(DefinitionError, match="the lookup of tool 'act'"):
        tool(recovery=Recovery.LOOKUP)(act).lookup(**options)


@pytest.mark.parametrize("dsn", ["", 5])
def test_the_dsn_is_checked(dsn: Any) -> None:
    agent = Agent("a", model=ScriptedModel(["done"]), instructions="", tools=[])
    with pytest.raises(DefinitionError, match="effects_dsn is a libpq URL"):
        App([agent], effects_dsn=dsn)


def app(recovery: Recovery, **options: Any) -> App:
    """An app with one tool."""
    return App(
        [Agent("a", model=ScriptedModel(["done"]), instructions="", tools=[tool(recovery=recovery, **options)(act)])]
    )


def call(**changed: Any) -> Invocation:
    """A call as the executor makes it."""
    fields: dict[str, Any] = {"run_id": "r", "agent": "a", "step": 2, "attempt": 1, "tool": "act", "tool_call_id": "c"}
    fields |= {"idempotency_key": "r:2", "arguments": b'{"what":"x"}', "values": {}, "timeout_s": 10.0}
    return Invocation(**{**fields, **changed})


@pytest.mark.parametrize(
    ("kept", "frozen"),
    [
        (app(Recovery.TRANSACTIONAL), {"recovery": Recovery.TRANSACTIONAL}),
        (app(Recovery.KEYED, dedupe=True), {"recovery": Recovery.KEYED, "dedupe": True}),
    ],
)
async def test_the_table_is_asked_by_what_the_request_froze(kept: App, frozen: Any) -> None:
    """Executed once; found; and a running code without a table knows nothing, and says so."""
    effects = MemoryEffects(MemoryEffectsDatabase())
    done = Returned(Outcome.SUCCESS, b'"x 1"')
    async with kept.running("executor", revision="r", effects=effects) as agents:
        agent = agents.get("a")
        assert agent is not None
        assert await agent.look_up(call(**frozen)) == NotThere()
        assert await agent.execute(call(**frozen, may_start=lambda: False)) == NotStarted()
        assert await agent.look_up(call(**frozen)) == NotThere()
        assert await agent.execute(call(**frozen)) == done
        found = await agent.execute(call(**frozen, attempt=2))
        assert isinstance(found, Returned)
        assert found.from_table
        assert await agent.look_up(call(**frozen)) == found
        assert await agent.close(call(**frozen), Returned(Outcome.FAILED, b'"no"')) == found
    async with app(Recovery.RERUN).running("executor", revision="r") as agents:
        agent = agents.get("a")
        assert agent is not None
        for answer in (
            await agent.look_up(call(**frozen)),
            await agent.execute(call(**frozen)),
            await agent.close(call(**frozen), done),
        ):
            assert isinstance(answer, Unknown)
            assert "has no effects table" in answer.error


async def test_a_claim_of_another_attempt_is_not_called_over() -> None:
    effects = MemoryEffects(MemoryEffectsDatabase())
    frozen: Any = {"recovery": Recovery.KEYED, "dedupe": True}

    async def lost(ctx: ToolContext[None], what: str) -> str:
        """Act, and fail."""
        raise RuntimeError(what)

    lost.__name__ = "act"
    failing = App([Agent("a", model=ScriptedModel(["x"]), instructions="", tools=[tool(**frozen)(lost)])])
    async with failing.running("executor", revision="r", effects=effects) as agents:
        agent = agents.get("a")
        assert agent is not None
        assert await agent.execute(call(**frozen)) == Unknown("RuntimeError: x")
        assert await agent.look_up(call(**frozen, attempt=2)) == Begun(1)
        refused = await agent.execute(call(**frozen, attempt=2))
        assert isinstance(refused, Unknown)
        assert "it was not called: attempt 1 began" in refused.error
        assert await agent.execute(call(**frozen, attempt=2, absent_upto=1)) == Unknown("RuntimeError: x")
        assert await agent.look_up(call(**frozen)) == Begun(2)
