"""What an author declares wrongly is an error at import, which names the thing and the mend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from runfold import ABSENT, Absent, Agent, App, Approval, Recovery, Result, ToolContext, tool
from runfold.core.decisions import Finish, Plan, tool_calling
from runfold.core.state import State
from runfold.sdk.errors import DefinitionError
from runfold.sdk.tools import Tool
from runfold.testing import ScriptedModel

if TYPE_CHECKING:
    from decimal import Decimal


class Deps:
    """What a lifespan gives."""


class Report(BaseModel):
    """A parameter of a type of its own."""

    body: str


def declared(function: Callable[..., Any], **options: Any) -> Tool[..., Any]:
    """Apply ``@tool`` to a function."""
    found: Tool[..., Any] = tool(**{"recovery": Recovery.RERUN, **options})(function)
    return found


async def read(ctx: ToolContext[Deps], title: str, priority: int = 3) -> str:
    """Read something."""
    return f"{ctx.run_id} {title} {priority}"


def agent(name: str = "one", **options: Any) -> Agent:
    """Declare an agent with defaults."""
    return Agent(name, **{"model": ScriptedModel(["done"]), "instructions": "", **options})


def test_a_tool_without_parentheses_is_told_the_classes() -> None:
    with pytest.raises(DefinitionError, match=r"write @tool\(recovery=...\), not @tool.*RERUN.*KEYED.*LOOKUP.*MANUAL"):

        @tool  # type: ignore[arg-type]
        def read(name: str) -> str:
            return name


def test_a_tool_without_recovery_is_told_the_classes() -> None:
    """The author says what to do when nobody knows; the error lists what can be said."""
    with pytest.raises(DefinitionError, match=r"'read' says no recovery.*RERUN.*KEYED.*LOOKUP.*MANUAL"):
        tool()(read)
    with pytest.raises(DefinitionError, match="has recovery 'rerun'"):
        declared(read, recovery="rerun")


def test_a_transactional_tool_is_async() -> None:
    """A thread cannot be stopped at its time-out: its transaction could neither be committed nor given up."""

    def write(body: str) -> str:
        """Write."""
        return body

    with pytest.raises(DefinitionError, match=r"'write' is TRANSACTIONAL and must be `async def`: a thread cannot"):
        declared(write, recovery=Recovery.TRANSACTIONAL)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout is in seconds, more than 0"),
        ({"timeout": -1.0}, "timeout is in seconds, more than 0"),
        ({"timeout": float("inf")}, "timeout is in seconds"),
        ({"timeout": "10"}, "timeout is in seconds"),
        ({"timeout": True}, "timeout is in seconds"),
        ({"retries": -1}, "retries is a whole number from 0 on"),
        ({"retries": 1.5}, "retries is a whole number"),
        ({"sequential": "yes"}, "sequential is True or False"),
        ({"needs_approval": 1}, "needs_approval is True or False"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], said: str) -> None:
    """Each option's own words."""
    with pytest.raises(DefinitionError, match=f"tool 'read': {said}"):
        declared(read, **options)


def test_a_name_that_providers_refuse_is_an_error() -> None:
    """Unicode is a fine identifier in Python and no tool name anywhere else."""

    async def grüße() -> str:  # noqa: PLC2401 - the point of the test
        return ""

    with pytest.raises(DefinitionError, match="cannot be called 'grüße'"):
        declared(grüße)
    with pytest.raises(DefinitionError, match="cannot be called '<lambda>'"):
        declared(lambda: None)


def test_parameters_that_a_model_cannot_fill_are_errors() -> None:
    """Star arguments, positional-only ones, a context that is not the first, types without a schema."""

    async def star(*names: str) -> str:
        return str(names)

    async def keywords(**names: str) -> str:
        return str(names)

    async def positional(name: str, /) -> str:
        return name

    async def late(name: str, ctx: ToolContext[Deps]) -> str:
        return f"{name}{ctx}"

    async def strange(thing: asyncio.Queue[int]) -> str:
        return str(thing)

    async def checker_only(amount: Decimal) -> str:
        return str(amount)

    async def generator(name: str) -> Any:
        yield name

    for function, said in (
        (star, "names"),
        (keywords, "names"),
        (positional, "name"),
        (late, "must be the first parameter"),
        (strange, "no schema can be made"),
        (checker_only, "'amount', 'Decimal', cannot be resolved"),
        (generator, "is a generator"),
    ):
        with pytest.raises(DefinitionError, match=said) as caught:
            declared(function)
        assert f"'{function.__name__}'" in str(caught.value)
    with pytest.raises(DefinitionError, match="must be a function"):
        declared(Deps)


def test_a_result_type_without_json_is_an_error_at_import() -> None:
    """Better now than after the effect."""

    async def opens() -> asyncio.Queue[int]:
        return asyncio.Queue()

    with pytest.raises(DefinitionError, match=r"tool 'opens' returns .*Queue.* which pydantic cannot serialise"):
        declared(opens)


def test_declaring_twice_is_an_error() -> None:
    """A decorated tool is no function any more."""
    with pytest.raises(DefinitionError, match="declared twice"):
        declared(declared(read))


def test_lookup_without_function_is_an_error_when_the_app_is_made() -> None:
    """Only then are all decorators of the module known."""
    one = agent(tools=[declared(read, recovery=Recovery.LOOKUP)])
    with pytest.raises(DefinitionError, match=r"tool 'read' has recovery LOOKUP and no lookup function.*@read\.lookup"):
        App([one])


def test_a_lookup_must_take_what_the_tool_takes() -> None:
    """Names, types and defaults; the context may be left out."""
    looked = declared(read, recovery=Recovery.LOOKUP)

    @looked.lookup
    def fine(title: str, priority: int = 3) -> str | Absent:
        return ABSENT if title else str(priority)

    assert looked.spec.has_lookup

    async def other_name(name: str, priority: int = 3) -> str:
        return f"{name}{priority}"

    async def other_type(title: str, priority: float = 3) -> str:
        return f"{title}{priority}"

    async def fewer(title: str) -> str:
        return title

    for function in (other_name, other_type, fewer):
        with pytest.raises(DefinitionError, match="the lookup of tool 'read' takes"):
            declared(read, recovery=Recovery.LOOKUP).lookup(function)
    with pytest.raises(DefinitionError, match="has a lookup already"):
        looked.lookup(fine)
    with pytest.raises(DefinitionError, match="never asks a lookup"):
        declared(read).lookup(fine)


def test_an_approval_function_and_needs_approval_exclude_each_other() -> None:
    """Else nobody could say which of them counts."""

    async def gate(ctx: ToolContext[Deps], title: str, priority: int = 3) -> Approval | None:
        return Approval(title, {"run": ctx.run_id}) if priority else None

    asked = declared(read)
    asked.approval(gate)
    assert (asked.gate, asked.spec.has_gate) == ("asked", True)
    assert declared(read, needs_approval=True).gate == "always"
    with pytest.raises(DefinitionError, match="needs_approval=True and an approval function"):
        declared(read, needs_approval=True).approval(gate)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "cannot be called ''"),
        ({"name": "two words"}, "cannot be called 'two words'"),
        ({"model": None}, "model is a pydantic-ai model name"),
        ({"instructions": None}, "instructions is a text"),
        ({"tools": [read]}, r"'read' is no tool: put @tool\(recovery=...\) above it"),
        ({"tools": declared(read)}, "tools is a list"),
        ({"tools": [declared(read), declared(read)]}, "has two tools called 'read'"),
        ({"input_type": str}, "input_type is not supported yet"),
        ({"limits": object()}, "limits is not supported yet"),
        ({"first_message": "hello"}, "first_message is a function"),
        ({"planner": "loop"}, "planner is a function"),
        ({"model_settings": [1]}, "model_settings is pydantic-ai's ModelSettings"),
        ({"model_settings": {"timeout": object()}}, "model_settings have to be recorded as JSON"),
        ({"on_version_change": {"code": "accept"}}, "names 'code'; the parts are revision, prompt, tools, model"),
        ({"on_version_change": {"model": "compatible"}}, r"\['model'\] is one of accept, refuse, not 'compatible'"),
        ({"on_version_change": {"model": dict}}, "migration function for 'model' is not supported yet"),
        ({"on_version_change": "accept"}, "maps parts to rules"),
    ],
)
def test_bad_agents_are_errors(options: dict[str, Any], said: str) -> None:
    """Each names the agent and the option."""
    with pytest.raises(DefinitionError, match=said):
        agent(**{"name": "one", **options})


def test_bad_apps_are_errors() -> None:
    """No agents, two of one name, something else, a lifespan that is no function."""
    for agents, said in (
        ([], "at least one Agent"),
        (agent(), "a list of at least one Agent"),
        ([agent(), agent()], "two agents are called 'one'"),
        (["one"], "'one' is none"),
    ):
        with pytest.raises(DefinitionError, match=said):
            App(agents)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="lifespan is a function"):
        App([agent()], lifespan=3)  # type: ignore[arg-type]


def test_the_policy_is_the_default_with_the_authors_parts() -> None:
    """A custom planner makes ``revision`` default to ``refuse``."""

    def planner(state: State) -> Plan:
        return Finish() if state.step else tool_calling(state)

    assert agent().policy == {"revision": "accept", "prompt": "refuse", "tools": "compatible", "model": "refuse"}
    assert agent(on_version_change={"prompt": "accept"}).policy["prompt"] == "accept"
    assert agent(planner=planner).policy["revision"] == "refuse"
    assert agent(planner=planner, on_version_change={"revision": "accept"}).policy["revision"] == "accept"
    assert agent(planner=planner).planner is planner
    assert agent().planner is tool_calling


def test_first_message_is_a_text_as_it_is_or_json() -> None:
    """The author's function may say it otherwise, and must say a text."""
    assert agent().opening(b'"hello"') == "hello"
    assert agent().opening(b'{"b": 1, "a": "\xc3\xa4"}') == '{"a":"ä","b":1}'
    assert agent(first_message=lambda value: f"Q: {value['q']}").opening(b'{"q": 7}') == "Q: 7"
    with pytest.raises(TypeError, match="first_message of agent 'one' must return a str, not int"):
        agent(first_message=int).opening(b"7")


def test_a_tool_can_still_be_called() -> None:
    """For the author's own tests."""

    @tool(recovery=Recovery.KEYED)
    def publish(report: Report) -> Result[str]:
        return Result(report.body)

    assert publish(Report(body="x")).value == "x"
    assert repr(publish) == "<tool publish keyed>"
