"""What an execution, a lookup and an approval question mean for the run."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ToolFailed

from runfold import ABSENT, Absent, Approval, Indeterminate, Recovery, Result, ToolContext, tool
from runfold.core.events import Outcome
from runfold.ports.agents import GateAsked, Invalid, NotThere, Returned, Unknown, Valid
from tests.unit.sdk.calling import Deps, invocation, running


@dataclass
class Line:
    """A parameter of a type of its own."""

    sku: str
    price: Decimal
    due: date | None = None


class Order(BaseModel):
    """A lone parameter whose fields the model fills directly."""

    order: str
    lines: list[Line]


async def test_the_context_says_all_that_the_contract_promises() -> None:
    """Key, deps, state, run, step, attempt, deadline, call id."""
    seen: list[ToolContext[Deps]] = []

    @tool(recovery=Recovery.KEYED)
    async def look(ctx: ToolContext[Deps], title: str) -> str:
        seen.append(ctx)
        return title

    async with running(look) as agent:
        now = asyncio.get_running_loop().time()
        assert await agent.execute(invocation("look", {"title": "x"})) == Returned(Outcome.SUCCESS, b'"x"')
    ctx = seen[0]
    assert (ctx.idempotency_key, ctx.run_id, ctx.step, ctx.attempt) == ("run-1:18", "run-1", 18, 1)
    assert ctx.tool_call_id == "call-1"
    assert ctx.deps.greeting == "hello executor"
    assert dict(ctx.state) == {"seen": [1, 2]}
    assert now + 4.9 < ctx.deadline <= now + 5.5
    assert 0 < ctx.seconds_left() <= 5.0


async def test_a_tool_without_context_and_a_sync_tool_work_alike() -> None:
    """The context is optional, and so is ``async``."""

    @tool(recovery=Recovery.RERUN)
    def double(number: int) -> int:
        return number * 2

    @tool(recovery=Recovery.RERUN)
    def name(ctx: ToolContext[Deps]) -> str:
        return f"{ctx.deps.greeting} {threading.current_thread() is threading.main_thread()}"

    async with running(double, name) as agent:
        assert await agent.execute(invocation("double", {"number": 4})) == Returned(Outcome.SUCCESS, b"8")
        assert await agent.execute(invocation("name")) == Returned(Outcome.SUCCESS, b'"hello executor False"')


async def test_only_model_retry_and_tool_failed_say_that_it_did_not_happen() -> None:
    """Everything else is an unknown outcome, SystemExit and a stray cancellation included."""
    raised: list[BaseException] = []

    @tool(recovery=Recovery.KEYED)
    async def fail() -> None:
        raise raised[0]

    @tool(recovery=Recovery.KEYED)
    def fail_in_thread() -> None:
        raise raised[0]

    async with running(fail, fail_in_thread) as agent:
        for name in ("fail", "fail_in_thread"):
            raised[:] = [ModelRetry("try another id")]
            assert await agent.execute(invocation(name)) == Returned(Outcome.RETRIED, b'"try another id"')
            raised[:] = [ToolFailed("no such order")]
            assert await agent.execute(invocation(name)) == Returned(Outcome.FAILED, b'"no such order"')
            for error in (ValueError("boom"), TimeoutError("theirs"), SystemExit(3), StopIteration(1)):
                raised[:] = [error]
                outcome = await agent.execute(invocation(name))
                assert isinstance(outcome, Unknown)
                assert not outcome.timed_out
                assert type(error).__name__ in outcome.error or "StopIteration" in outcome.error
        raised[:] = [asyncio.CancelledError()]
        assert await agent.execute(invocation("fail")) == Unknown(
            "StrayCancellation: the function was cancelled from inside"
        )


async def test_a_time_out_is_unknown_and_a_cancellation_propagates() -> None:
    """Who cancels the execution is not told a result."""
    entered = asyncio.Event()

    @tool(recovery=Recovery.KEYED)
    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with running(hang) as agent:
        assert await agent.execute(invocation("hang", timeout_s=0.01)) == Unknown("timed out after 0.01 s", True)
        entered.clear()
        task = asyncio.create_task(agent.execute(invocation("hang")))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_results_are_recorded_by_their_type() -> None:
    """As the JSON of pydantic, canonical; ``Result`` with what the model sees and the state's changes."""
    values: list[Any] = []

    @tool(recovery=Recovery.KEYED)
    async def typed() -> dict[str, Decimal]:
        value: dict[str, Decimal] = values[0]
        return value

    @tool(recovery=Recovery.KEYED)
    async def untyped():  # type: ignore[no-untyped-def] # noqa: ANN202 - what an author may leave out
        return values[0]

    @tool(recovery=Recovery.KEYED)
    async def rich() -> Result[Line]:
        return Result(Line("a", Decimal("1.50")), for_model={"short": True}, patch={"n": 1, "when": date(2026, 1, 2)})

    async with running(typed, untyped, rich) as agent:
        values[:] = [{"b": Decimal("2.0"), "a": Decimal(1)}]
        assert await agent.execute(invocation("typed")) == Returned(Outcome.SUCCESS, b'{"a":"1","b":"2.0"}')
        values[:] = ["not what was annotated"]
        assert await agent.execute(invocation("typed")) == Returned(Outcome.SUCCESS, b'"not what was annotated"')
        values[:] = [{"x": float("nan"), "y": {1}}]
        assert await agent.execute(invocation("untyped")) == Returned(Outcome.SUCCESS, b'{"x":null,"y":[1]}')
        assert await agent.execute(invocation("rich")) == Returned(
            Outcome.SUCCESS,
            b'{"due":null,"price":"1.50","sku":"a"}',
            for_model=b'{"short":true}',
            patch=b'{"n":1,"when":"2026-01-02"}',
        )


async def test_a_result_without_json_is_recorded_as_a_failure_that_says_so() -> None:
    """The effect has happened: unknown would repeat it, silence would lose it."""
    values: list[Any] = [object()]

    @tool(recovery=Recovery.KEYED)
    async def odd():  # type: ignore[no-untyped-def] # noqa: ANN202 - what an author may leave out
        return values[0]

    async with running(odd) as agent:
        deep: list[Any] = []
        for _ in range(5000):
            deep = [deep]
        for value in (object(), "\ud800", ABSENT.__class__, [threading.Lock()], deep):
            values[:] = [value]
            outcome = await agent.execute(invocation("odd"))
            assert isinstance(outcome, Returned)
            assert outcome.outcome is Outcome.FAILED
            assert "tool 'odd' ran and returned, so its effect happened" in json.loads(outcome.result)
        values[:] = [Result("T-1", patch={"x": object()})]
        outcome = await agent.execute(invocation("odd"))
        assert isinstance(outcome, Returned)
        assert (outcome.outcome, outcome.result, outcome.patch) == (Outcome.FAILED, b'"T-1"', None)
        assert outcome.for_model is not None
        values[:] = [Result("T-1", patch={})]
        assert await agent.execute(invocation("odd")) == Returned(Outcome.SUCCESS, b'"T-1"')


async def test_arguments_are_validated_filled_in_and_come_back_as_they_were() -> None:
    """What is recorded validates again; extra fields are refused; errors are for the model."""
    seen: list[tuple[Line, int, date]] = []

    @tool(recovery=Recovery.KEYED)
    async def ship(line: Line, count: int = 3, on: date = date(2026, 1, 1)) -> None:
        """Ship.

        Args:
            line: What to ship.
        """
        seen.append((line, count, on))

    async with running(ship) as agent:
        valid = agent.validate("ship", b'{"line": {"price": "2.50", "sku": "a", "due": "2026-02-03"}}')
        assert isinstance(valid, Valid)
        assert json.loads(valid.arguments) == {
            "line": {"sku": "a", "price": "2.50", "due": "2026-02-03"},
            "count": 3,
            "on": "2026-01-01",
        }
        outcome = await agent.execute(invocation("ship", arguments=valid.arguments))
        assert outcome == Returned(Outcome.SUCCESS, b"null")
        assert seen == [(Line("a", Decimal("2.50"), date(2026, 2, 3)), 3, date(2026, 1, 1))]
        assert agent.validate("ship", valid.arguments) == valid
        for wrong, said in (
            (b'{"line": {"price": 1}}', "Field required"),
            (b'{"line": {"price": 1, "sku": "a"}, "speed": 9}', "Extra inputs are not permitted"),
            (b"{broken", "Invalid JSON"),
            (b"[]", "should be an object"),
            (b"\xff\xfe", "Invalid JSON"),
            (b"", "Field required"),
        ):
            invalid = agent.validate("ship", wrong)
            assert isinstance(invalid, Invalid)
            assert said in json.loads(invalid.error)[0]["msg"]
        unknown = agent.validate("sell", b"{}")
        assert unknown == Invalid(b"\"Unknown tool name: 'sell'. Available tools: 'ship'\"")


async def test_a_lone_model_parameter_comes_back_too() -> None:
    """pydantic-ai shows the model its fields directly; the record names the parameter."""
    seen: list[Order] = []

    @tool(recovery=Recovery.KEYED)
    async def place(order: Order) -> str:
        seen.append(order)
        return order.order

    async with running(place) as agent:
        valid = agent.validate("place", b'{"order": "o-1", "lines": [{"sku": "a", "price": 1}]}')
        assert isinstance(valid, Valid)
        outcome = await agent.execute(invocation("place", arguments=valid.arguments))
        assert outcome == Returned(Outcome.SUCCESS, b'"o-1"')
        assert seen == [Order(order="o-1", lines=[Line("a", Decimal(1))])]


async def test_recorded_arguments_that_the_code_no_longer_accepts_are_not_run() -> None:
    """Nobody knows what the earlier attempt did: unknown, never a failure."""
    ran: list[int] = []

    @tool(recovery=Recovery.KEYED)
    async def pay(cents: int) -> None:
        ran.append(cents)

    async with running(pay) as agent:
        outcome = await agent.execute(invocation("pay", {"euros": 1}))
        assert isinstance(outcome, Unknown)
        assert "tool 'pay' does not accept the recorded arguments" in outcome.error
        gone = await agent.execute(invocation("refund"))
        assert gone == Unknown("agent 'one' of the running code has no tool 'refund'")
        assert ran == []


async def test_what_a_lookup_says() -> None:
    """Found, absent, cannot tell; whatever it raises has said nothing."""
    answers: list[Any] = []

    @tool(recovery=Recovery.LOOKUP)
    async def create(ctx: ToolContext[Deps], title: str) -> dict[str, str]:
        return {"id": title + ctx.run_id}

    @create.lookup
    async def find(ctx: ToolContext[Deps], title: str) -> dict[str, str] | Absent:
        answer = answers[0]
        if isinstance(answer, BaseException):
            raise answer
        if answer == "hang":
            await asyncio.Event().wait()
        found: dict[str, str] | Absent = answer
        return found if ctx.idempotency_key == "run-1:18" and title else ABSENT

    call = invocation("create", {"title": "x"})
    async with running(create) as agent:
        spec = agent.tool("create")
        assert spec is not None
        assert spec.has_lookup
        for answer, meant in (
            ({"id": "T-7"}, Returned(Outcome.SUCCESS, b'{"id":"T-7"}')),
            (Result({"id": "T-7"}, patch={"t": 1}), Returned(Outcome.SUCCESS, b'{"id":"T-7"}', patch=b'{"t":1}')),
            (ABSENT, NotThere()),
            (Indeterminate("two of them"), Unknown("the lookup cannot tell: two of them")),
            (ValueError("boom"), Unknown("ValueError: boom")),
            (ToolFailed("404"), Unknown("ToolFailed: 404")),
        ):
            answers[:] = [answer]
            assert await agent.look_up(call) == meant
        answers[:] = ["hang"]
        outcome = await agent.look_up(invocation("create", {"title": "x"}, timeout_s=0.01))
        assert isinstance(outcome, Unknown)
        assert outcome.timed_out
        answers[:] = [None]
        forgot = await agent.look_up(call)
        assert isinstance(forgot, Unknown)
        assert "returned None" in forgot.error


async def test_what_an_approval_function_says() -> None:
    """An approval with its detail, or nothing; anything else is the author's defect."""
    answers: list[Any] = []

    @tool(recovery=Recovery.KEYED)
    async def refund(amount: Decimal) -> None:
        """Refund."""

    @refund.approval
    def gate(ctx: ToolContext[Deps], amount: Decimal) -> Approval | None:
        answer: Approval | None = answers[0]
        assert ctx.step == 18
        return answer if amount > 10 else None

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def publish(body: str) -> None:
        """Publish."""

    @tool(recovery=Recovery.RERUN)
    async def read() -> None:
        """Read."""

    async with running(refund, publish, read) as agent:
        answers[:] = [Approval("large", {"amount": Decimal("12.5")})]
        assert await agent.gate(invocation("refund", {"amount": "12.5"})) == GateAsked("large", {"amount": "12.5"})
        assert await agent.gate(invocation("refund", {"amount": "1"})) is None
        assert await agent.gate(invocation("publish", {"body": "x"})) == GateAsked(None)
        assert await agent.gate(invocation("read")) is None
        answers[:] = ["yes"]
        with pytest.raises(TypeError, match="approval function of tool 'refund' must return an Approval or None"):
            await agent.gate(invocation("refund", {"amount": "12.5"}))
