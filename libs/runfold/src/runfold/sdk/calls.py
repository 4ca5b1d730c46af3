"""One execution, one lookup, one approval question: the author's function called, and what its end means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import structlog
from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from runfold.core.events import Outcome, Recovery
from runfold.core.payload import canonical_json
from runfold.ports.agents import GateAsked, Invalid, Invocation, NotStarted, NotThere, Returned, Unknown, Valid
from runfold.sdk.context import StateView, ToolContext
from runfold.sdk.encoding import Encoder, NotSerialisable, dump_any, dump_arguments, dump_patch
from runfold.sdk.frames import frames_of
from runfold.sdk.kept import Kept
from runfold.sdk.signature import Shape
from runfold.sdk.threads import Threads
from runfold.sdk.tools import Tool
from runfold.sdk.values import ABSENT, Approval, Indeterminate, Result

AnyTool = Tool[Any, Any]

_log = structlog.get_logger(__name__)

_THREAD_RUNS = "a thread of this call is still running in this process"
_RAISED_LATE = "an earlier thread of this call raised behind its time-out; what it did may not show yet (settle)"


class StrayCancellation(Exception):
    """An author's function ended with a cancellation that nobody had asked for."""


class ArgumentsChanged(Exception):
    """Recorded arguments that the running code's tool does not accept."""


class Calls:
    """Calls authors' functions. One per running app: it knows which sync functions are still running."""

    def __init__(self, deps: object, kept: Kept) -> None:
        self._deps = deps
        self._kept = kept
        self._threads = Threads()

    async def execute(self, tool: AnyTool, call: Invocation) -> Returned | Unknown | NotStarted:
        """Run a tool; see ``RunningAgent.execute``.

        A sync tool's earlier thread of the same key is waited for first, within the time-out. What it did is then
        looked up again, or taken for what this execution did, where neither key nor table stands in the way of a second
        effect: somebody may have said "absent" while it was still running.
        """
        recovery = call.recovery or tool.recovery
        scope = asyncio.timeout(call.timeout_s)
        try:
            arguments = restored(tool, call.arguments)
            async with scope:
                await self._threads.returned(call.idempotency_key)
                earlier = await self._earlier(tool, call, recovery)
                if earlier is not None:
                    return earlier
                if recovery is Recovery.TRANSACTIONAL:
                    return await self._kept.in_transaction(call, partial(self._told, tool, call, arguments))
                if call.dedupe:
                    return await self._kept.once(call, partial(self._told, tool, call, arguments))
                if not call.may_start():
                    return NotStarted()
                return await self._told(tool, call, arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - nobody knows what happened
            return self._unknown(error, call, scope, "tool_raised")

    async def _earlier(self, tool: AnyTool, call: Invocation, recovery: Recovery) -> Returned | Unknown | None:
        """Say what an earlier thread of the call did behind its time-out; None: nothing that stands in the way."""
        key = call.idempotency_key
        if recovery is Recovery.LOOKUP and self._threads.late(key) is not None:
            answer = await self.look_up(tool, call)
            if isinstance(answer, NotThere):
                return None if call.settle_ms is None else Unknown(_RAISED_LATE)
            return answer
        late = self._threads.take_late(key) if recovery is Recovery.MANUAL or call.dedupe else None
        return None if late is None else await self._taken(tool, asyncio.wrap_future(late))

    async def _told(
        self, tool: AnyTool, call: Invocation, arguments: dict[str, Any], connection: object = None
    ) -> Returned:
        """Call the tool and take what it says."""
        answer = self._call(tool.function, tool.shape, call, arguments, call.idempotency_key, connection)
        return await self._taken(tool, answer, is_undone=connection is not None)

    async def _taken(self, tool: AnyTool, answer: Awaitable[Any], *, is_undone: bool = False) -> Returned:
        """Take what a tool says; whatever else it raises is raised: nobody knows what that means."""
        try:
            value = await answer
        except ModelRetry as told:
            return Returned(Outcome.RETRIED, canonical_json(told.message))
        except ToolFailed as told:
            return Returned(Outcome.FAILED, canonical_json(told.message))
        return recorded(tool.name, tool.encoder, value, is_undone=is_undone)

    async def look_up(self, tool: AnyTool, call: Invocation) -> Returned | NotThere | Unknown:
        """Ask a tool's lookup; see ``RunningAgent.look_up``.

        A thread that has ended behind its time-out is asked first: it knows what it did. While it still runs, "absent"
        may not stay true: it is not believed.
        """
        asked = tool.lookup_function
        if asked is None:
            return Unknown(f"tool {tool.name!r} has no lookup function")
        key = call.idempotency_key
        was_running = self._threads.is_running(key)  # asked first: who runs no more has left what it did
        said = await self._said_late(tool, key)
        if said is not None:
            return said
        if asked.timeout_s is not None:
            call = replace(call, timeout_s=asked.timeout_s)
        scope = asyncio.timeout(call.timeout_s)
        try:
            arguments = restored(tool, call.arguments)
            async with scope:
                value = await self._call(asked.function, asked.shape, call, arguments, None)
        except Indeterminate as error:
            return Unknown(f"the lookup cannot tell: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a lookup that fails has said nothing
            return self._unknown(error, call, scope, "lookup_raised")
        return self._found(tool, key, value, was_running=was_running)

    async def _said_late(self, tool: AnyTool, key: str) -> Returned | None:
        """Take what a thread said behind its time-out; None: none has ended, or it raised, which says nothing."""
        late = self._threads.late(key)
        if late is None or not late.done():
            return None
        try:
            said = await self._taken(tool, asyncio.wrap_future(late))
        except Exception:  # noqa: BLE001 - nobody knows what that means: the lookup is asked
            return None
        self._threads.looked_at(key)
        return said

    def _found(self, tool: AnyTool, key: str, value: object, *, was_running: bool) -> Returned | NotThere | Unknown:
        if value is ABSENT and was_running:
            return Unknown(f"{_THREAD_RUNS}; the lookup says absent, which may change")
        if value is ABSENT:
            self._threads.looked_at(key)
            return NotThere()
        if value is None and not tool.encoder.admits(None):
            return Unknown("the lookup returned None: it has to return the result, ABSENT, or raise Indeterminate")
        return recorded(tool.name, tool.lookup_encoder, value)

    async def gate(self, tool: AnyTool, call: Invocation) -> GateAsked | None:
        """Ask whether a call needs an approval; see ``RunningAgent.gate``.

        Raises:
            TimeoutError: The approval function took too long.
            TypeError: It returned something else than an ``Approval`` or None.
        """
        asked = tool.approval_function
        if asked is None:
            return GateAsked(None) if tool.needs_approval else None
        async with asyncio.timeout(call.timeout_s):
            answer = await self._call(asked.function, asked.shape, call, restored(tool, call.arguments), None)
        if answer is None:
            return None
        if not isinstance(answer, Approval):
            message = f"{asked.owner} must return an Approval or None, not {type(answer).__name__}"
            raise TypeError(message)
        detail = json.loads(dump_any(dict(answer.detail)))
        return GateAsked(answer.message, cast("Mapping[str, object]", detail))

    async def _call(
        self,
        function: Callable[..., Any],
        shape: Shape,
        call: Invocation,
        arguments: dict[str, Any],
        key: str | None,
        connection: object = None,
    ) -> Any:  # noqa: ANN401 - the author's value
        context = (self._context(call, connection),) if shape.takes_context else ()
        bound = partial(function, *context, **arguments)
        if not shape.is_async:
            is_asked_for = call.dedupe or call.recovery in (None, Recovery.LOOKUP, Recovery.MANUAL)
            return await self._threads.run(key, bound, is_asked_for=is_asked_for)
        try:
            return await bound()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            message = "the function was cancelled from inside"
            raise StrayCancellation(message) from error

    def _context(self, call: Invocation, connection: Any) -> ToolContext[Any]:  # noqa: ANN401 - the table's
        clock = asyncio.get_running_loop().time
        return ToolContext(
            deps=self._deps,
            idempotency_key=call.idempotency_key,
            run_id=call.run_id,
            step=call.step,
            attempt=call.attempt,
            tool_call_id=call.tool_call_id,
            state=StateView(call.values),
            deadline=clock() + call.timeout_s,
            clock=clock,
            transaction=connection,
        )

    def _unknown(self, error: BaseException, call: Invocation, scope: asyncio.Timeout, event: str) -> Unknown:
        if not (isinstance(error, TimeoutError) and scope.expired()):
            place = {"run_id": call.run_id, "step": call.step, "attempt": call.attempt, "tool": call.tool}
            # Its message may hold payload: it is recorded in the run, and not logged.
            _log.warning(event, error=type(error).__name__, frames=frames_of(error), **place)
            return Unknown(f"{type(error).__name__}: {error}")
        said = f"timed out after {call.timeout_s:g} s"
        is_running = self._threads.is_running(call.idempotency_key)
        return Unknown(f"{said}; {_THREAD_RUNS}" if is_running else said, timed_out=True)


def validated(tool: AnyTool, arguments: bytes) -> Valid | Invalid:
    """Check the model's own arguments; what is recorded validates again, later and elsewhere."""
    validator = tool.schema.function_schema.validator
    try:
        accepted = validator.validate_json(arguments or b"{}")
        encoded = dump_arguments(accepted)
        restored(tool, encoded)
    except ValidationError as error:
        return Invalid(_canonical_errors(error))
    except ModelRetry as error:  # an author's own validator may say it in these words
        return Invalid(canonical_json(error.message))
    except (NotSerialisable, ArgumentsChanged) as error:
        return Invalid(canonical_json(f"the arguments cannot be recorded as JSON: {error}"))
    return Valid(encoded)


def restored(tool: AnyTool, arguments: bytes) -> dict[str, Any]:
    """Read recorded arguments back into Python values.

    Raises:
        ArgumentsChanged: The running code's tool does not accept them.
    """
    schema = tool.schema.function_schema
    record = arguments
    if schema.single_arg_name is not None:  # a lone model parameter: pydantic-ai shows the model its fields directly
        record = canonical_json(json.loads(arguments).get(schema.single_arg_name))
    try:
        return dict(schema.validator.validate_json(record))
    except ValidationError as error:
        message = f"tool {tool.name!r} does not accept the recorded arguments: {_canonical_errors(error).decode()}"
        raise ArgumentsChanged(message) from error


def recorded(name: str, encoder: Encoder, value: object, *, is_undone: bool = False) -> Returned:
    """Make the record of what a function returned.

    The effect has happened: a value without a JSON form must neither be lost in silence nor be called unknown, which
    would run the tool again. It is recorded as a failure that says so, with as much of the result as can be encoded.

    Args:
        name: The tool's.
        encoder: For the value.
        value: What it returned.
        is_undone: A failure undoes the effect: that of a TRANSACTIONAL tool.
    """
    result = value if isinstance(value, Result) else Result(value)
    try:
        main = encoder.dump(result.value)
    except NotSerialisable as error:
        return Returned(Outcome.FAILED, canonical_json(_lost(name, "result", error, is_undone=is_undone)))
    try:
        shown = None if result.for_model is None else dump_any(result.for_model)
        patch = dump_patch(result.patch)
    except NotSerialisable as error:
        lost = canonical_json(_lost(name, "for_model or patch", error, is_undone=is_undone))
        return Returned(Outcome.FAILED, lost) if is_undone else Returned(Outcome.FAILED, main, for_model=lost)
    return Returned(Outcome.SUCCESS, main, for_model=shown, patch=patch)


def _lost(name: str, what: str, error: NotSerialisable, *, is_undone: bool) -> str:
    if is_undone:
        return f"tool {name!r} ran and was undone, since its {what} could not be recorded: {error}"
    return f"tool {name!r} ran and returned, so its effect happened, but its {what} could not be recorded: {error}"


def _canonical_errors(error: ValidationError) -> bytes:
    """List what pydantic found, as the model is shown it; without its input where that has no JSON form."""
    try:
        return canonical_json(json.loads(error.json(include_url=False, include_context=False)))
    except ValueError:
        return canonical_json(json.loads(error.json(include_url=False, include_context=False, include_input=False)))
