"""``Harness``: the whole runtime in one process, on in-memory stores and virtual time, for an author's tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from runfold.client.inputs import Submitted
from runfold.client.reader import Settled
from runfold.core.decisions import status
from runfold.core.events import WaitReason
from runfold.core.state import State, Status
from runfold.ports.effects import EffectsTable
from runfold.sdk.app import App
from runfold.testing.harness.engine import Engine, Settings
from runfold.testing.harness.errors import InputRefusedError, RunNotFoundError, RunWaitsError
from runfold.testing.harness.findings import Report
from runfold.testing.harness.journal import Call
from runfold.testing.harness.loop import Bridge, open_bridge
from runfold.testing.harness.quiet import quiet_logs
from runfold.testing.harness.traps import Crash, Trap, armed

Json = Any
JsonList = list[Any]
T = TypeVar("T")

_RESULT_S = 3600.0
# In which a test that waits for a result on another loop may still approve what the run waits for.
_SECOND_THOUGHT_S = 0.05


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a tool, as the log has it: ``why`` is ``first, retry, takeover, stale`` or ``absent``."""

    tool: str
    step: int
    attempt: int
    why: str


AttemptList = list[Attempt]
CallList = list[Call]


class Events:
    """A run's events: ``await`` gives the list, ``async for`` one after the other."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, JsonList]]) -> None:
        self._read = read

    def __await__(self) -> Generator[Any, None, JsonList]:
        return self._read().__await__()

    async def __aiter__(self) -> AsyncIterator[Json]:
        for event in await self._read():
            yield event


class Harness:
    """One runtime, from ``async with Harness(app) as harness:`` to the end of the block.

    Works on any asyncio loop. Time is virtual: take-overs, back-offs and time-outs cost milliseconds; see
    docs/testing.md for what is real and what is not.

    Args:
        app: The app; or a function that makes one, called once; or, with ``world``, a function of the world that
            makes one, called for every process, as a process imports its code.
        world: Makes what outlives processes: the author's fakes of other systems.
        revision: Code revision that the app is started under.
        snapshot_every: As ``RUNFOLD_SNAPSHOT_EVERY``.
        session: Seconds after which a killed executor's work is given to the next one.
        effects: Makes the effects table of each process; default: one in memory.

    Attributes:
        world: What ``world`` made.
        app: Gives the app that a new process would run at first.
        engine: The runtime behind it.
    """

    def __init__(
        self,
        app: App | Callable[..., App],
        *,
        world: Callable[[], Any] | None = None,
        revision: str = "rev-1",
        snapshot_every: int = 50,
        session: float = 10.0,
        effects: Callable[[], EffectsTable] | None = None,
    ) -> None:
        self.world: Any = None if world is None else world()
        self._make_world = world
        self._made_of: dict[str, Any] = {
            "app": app,
            "world": world,
            "revision": revision,
            "snapshot_every": snapshot_every,
            "session": session,
            "effects": effects,
        }
        self.app = self._maker(app)
        self.engine = Engine(self.app, Settings(revision, snapshot_every, session, effects))
        self._bridge: Bridge | None = None
        self._logs = quiet_logs()
        self._ids = _numbered()

    def _maker(self, app: App | Callable[..., App]) -> Callable[[], App]:
        if self._make_world is not None and not isinstance(app, App) and inspect.signature(app).parameters:
            return partial(_made, app, self.world)
        fixed = app if isinstance(app, App) else _made(app)
        return lambda: fixed

    async def __aenter__(self) -> Self:
        if self._bridge is not None:
            raise RuntimeError("a Harness is entered once: make another one")
        self._bridge = await open_bridge()
        self._logs.__enter__()
        try:
            await self._bridge.call(self.engine.open)
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._call(partial(self.engine.close, in_order=error is None))
        finally:
            await self._leave()

    async def _leave(self) -> None:
        self._logs.__exit__(None, None, None)
        if self._bridge is not None:
            await self._bridge.stop()

    async def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await self._entered().call(work)

    def _entered(self) -> Bridge:
        if self._bridge is None:
            raise RuntimeError("write `async with Harness(app) as harness:` around this")
        return self._bridge

    # --- inputs -------------------------------------------------------------------------------------------------

    async def start(self, agent: str, input: Json = None, *, run_id: str | None = None) -> str:  # noqa: A002 - the contract's word
        """Start a run and give its id; the same id, agent and input again have no effect.

        Raises:
            InputRefusedError: There is such a run already, of another agent or input. By all of these: it was not
                accepted.
        """
        chosen = next(self._ids) if run_id is None else run_id
        await self._send("run_started", lambda: self.engine.client.start(agent, input, run_id=chosen))
        return chosen

    async def approve(
        self, run_id: str, approval_id: str | int | None = None, *, by: str = "tester", comment: str | None = None
    ) -> Settled:
        """Let a gated call happen; waits until the gate is open.

        Args:
            run_id: The run.
            approval_id: ``run_id:step``, or the step; None: the only gate that is open.
            by: Who approves.
            comment: Recorded.
        """
        gate = await self._call(partial(self._gate, run_id, approval_id))
        client = self.engine.client
        return await self._send("the approval", lambda: client.approve(run_id, gate, by=by, comment=comment))

    async def reject(
        self, run_id: str, approval_id: str | int | None = None, *, by: str = "tester", comment: str | None = None
    ) -> Settled:
        """Refuse a gated call, as ``approve``; the model is told."""
        gate = await self._call(partial(self._gate, run_id, approval_id))
        client = self.engine.client
        return await self._send("the rejection", lambda: client.reject(run_id, gate, by=by, comment=comment))

    async def cancel(self, run_id: str, *, reason: str = "cancelled by a test", by: str | None = None) -> Settled:
        """End a run."""
        return await self._send("the cancellation", lambda: self.engine.client.cancel(run_id, reason=reason, by=by))

    async def resume(self, run_id: str, *, by: str = "tester", accept_version: bool = False) -> Settled:
        """Let a run go on that an error or another version stopped."""
        client = self.engine.client
        return await self._send("the resume", lambda: client.resume(run_id, by=by, accept_version=accept_version))

    async def resolve(
        self,
        run_id: str,
        step: int,
        outcome: str = "result",
        *,
        by: str = "tester",
        result: Json = None,
        error: str | None = None,
    ) -> Settled:
        """Say what became of an indeterminate call: ``result``, ``absent`` (run it again) or ``error``."""

        async def send() -> Submitted:
            await self.engine.caught_up()  # which attempt is in doubt stands in Postgres
            return await self.engine.client.resolve(run_id, step, outcome, by=by, result=result, error=error)

        return await self._send("the resolve", send)

    async def _send(self, what: str, send: Callable[[], Coroutine[Any, Any, Submitted]]) -> Settled:
        async def work() -> Settled:
            self.engine.on_input()
            submitted = await send()
            settled = await self.engine.settled(submitted)
            if settled.is_dead:
                raise InputRefusedError(what, submitted.run_id, settled.reason or "", settled.detail)
            return settled

        return await self._call(work)

    async def _gate(self, run_id: str, asked: str | int | None) -> str:
        """Wait for the gate that is meant; what the run never opens is left to the runtime to refuse."""
        wanted = f"{run_id}:{asked}" if isinstance(asked, int) else asked

        def look() -> str | None:
            state = self._state(run_id)
            gates = [wait.wait_id for wait in state.waits.values() if wait.reason is WaitReason.AWAITING_APPROVAL]
            if wanted is not None:
                seen = wanted in gates or status(state) is not Status.RUNNING
                return wanted if seen else None
            if len(gates) > 1:
                raise ValueError(f"run {run_id} has several open gates, say which: {', '.join(gates)}")
            if not gates and status(state) is not Status.RUNNING:
                raise ValueError(f"run {run_id} has no open gate: it is {status(state)}")
            return gates[0] if gates else None

        found = await self.engine.until(look, _RESULT_S, f"a gate of run {run_id}")
        assert found is not None  # noqa: S101 - for mypy
        return found

    def _state(self, run_id: str) -> State:
        state = self.engine.ledger.refresh().runs.get(run_id)
        if state is None:
            raise RunNotFoundError(run_id)
        return state

    # --- reading ------------------------------------------------------------------------------------------------

    async def result(self, run_id: str, timeout: float = _RESULT_S) -> Json:  # noqa: ASYNC109 - virtual seconds
        """Let the run go on until it has ended, and give its output.

        Raises:
            RunFailedError, RunCancelledError, RunNotFoundError: As ``Client.result``.
            RunWaitsError: It goes on only when somebody does something.
            TimeoutError: It has not ended in ``timeout`` virtual seconds.
        """
        while (waits := await self._call(partial(self._end_or_waits, run_id, timeout))) is not None:
            await asyncio.sleep(_SECOND_THOUGHT_S)
            if waits == await self._call(partial(self._waits_now, run_id)):
                raise RunWaitsError(run_id, waits)
        return await self._call(lambda: self.engine.client.result(run_id))

    async def waiting(self, run_id: str, timeout: float = _RESULT_S) -> JsonList:  # noqa: ASYNC109 - virtual
        """Let the run go on until it waits for somebody, and give its open waits; [] if it has ended."""
        return await self._call(partial(self._end_or_waits, run_id, timeout)) or []

    async def _end_or_waits(self, run_id: str, timeout_s: float) -> JsonList | None:
        def is_at_rest() -> bool:
            return status(self._state(run_id)) is not Status.RUNNING

        await self.engine.until(is_at_rest, timeout_s, f"the result of run {run_id}")
        return await self._waits_now(run_id)

    async def _waits_now(self, run_id: str) -> JsonList | None:
        if self._state(run_id).ended is not None:
            return None
        shown = await self.engine.client.show(run_id)
        return list(shown["waits"]) if shown["status"] == Status.WAITING else []

    def events(self, run_id: str) -> Events:
        """Give the run's valid events so far, as ``runfold events --json`` shows them: ``await`` it."""

        async def read() -> JsonList:
            return [event async for event in self.engine.client.events(run_id)]

        return Events(lambda: self._call(read))

    async def show(self, run_id: str) -> Json:
        """Give one run and its open waits, as ``runfold show --json``."""
        return await self._call(lambda: self.engine.client.show(run_id))

    async def state(self, run_id: str, *, at: int | None = None) -> Json:
        """Give everything that the fold knows of a run, as ``runfold state --json``; the author's keys: ``values``."""
        return await self._call(lambda: self.engine.client.state(run_id, at=at))

    async def list(self, *, status: str | None = None, agent: str | None = None) -> JsonList:
        """Give the runs, newest first, as ``runfold list --json``."""

        async def read() -> Json:
            await self.engine.caught_up()
            return await self.engine.client.list(status=status, agent=agent)

        return await self._call(read)

    async def waits(self, run_id: str | None = None) -> JsonList:
        """Give the open waits, as ``runfold waits --json``, once nothing moves any more."""

        async def read() -> Json:
            await self.engine.until(lambda: self.engine.ledger.refresh().is_at_rest, _RESULT_S, "the waits")
            await self.engine.caught_up()
            return await self.engine.client.waits(run_id)

        return await self._call(read)

    async def attempts(self, run_id: str) -> AttemptList:
        """Give every execution of a tool that the log has, the repeated ones too."""
        return [
            Attempt(event["tool"], event["step"], event["attempt"], event["why"])
            for event in await self.events(run_id)
            if event["type"] == "tool_call_requested"
        ]

    def calls(self, kind: str | None = None, *, run_id: str | None = None) -> CallList:
        """Give the calls of the author's functions and of the model that really happened, in their order.

        Args:
            kind: ``tool``, ``lookup``, ``approval``, ``model`` or ``lifespan``.
            run_id: Only those of this run.
        """
        return [
            call
            for call in self.engine.journal.calls
            if kind in (None, call.kind) and (run_id is None or call.run_id == run_id)
        ]

    @property
    def committed(self) -> JsonList:
        """Statements of TRANSACTIONAL tools that were committed, with their parameters (in-memory effects table)."""
        return self.engine.cluster.effects_database.committed

    # --- time, crashes, deployments -----------------------------------------------------------------------------

    async def advance(
        self, seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let virtual time pass: ``await harness.advance(days=10)``."""
        given = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        whole = given + timedelta(minutes=minutes, hours=hours, days=days)
        await self._call(partial(self.engine.advance, whole.total_seconds()))

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass, as ``asyncio.sleep`` lets real time pass."""
        await self.advance(seconds)

    def crash(
        self,
        after: str | None = None,
        *,
        before: str | None = None,
        step: int | None = None,
        run_id: str | None = None,
    ) -> Crash:
        """Kill the executor as SIGKILL does; a new one is started, and takes over when the session is over.

        Args:
            after: The type of an event: the process dies when it is durable, before it does anything else.
            before: The process dies before it is durable.
            step: Which one; None: the first.
            run_id: Whose; None: anybody's.

        Returns:
            The crash, armed. Without ``after`` and ``before`` it happens now. ``await`` it to wait until it has
            happened, or until nothing moves any more.

        Raises:
            ValueError: There can be no such event.
        """
        bridge = self._entered()
        trap = armed(after, before, step, run_id)
        if trap.event is None:
            bridge.tell(partial(self.engine.arm, trap))
        else:
            self.engine.arm(trap)  # at once; the loop's thread only looks into the list

        def wait(trap: Trap) -> Generator[Any, None, None]:
            return self._call(partial(self.engine.sprung, trap)).__await__()

        return Crash(trap, wait)

    async def restart(self, *, revision: str | None = None) -> None:
        """Stop executor and reconciler in order (SIGTERM) and start them again, perhaps under another revision."""
        await self._call(partial(self.engine.replace, None, revision or self.engine.revision))

    async def deploy(self, app: App | Callable[..., App], *, revision: str | None = None) -> None:
        """Roll out another app: like ``restart``, with its code; the revision counts up unless one is said."""
        named = revision or f"{self.engine.revision}+1"
        await self._call(partial(self.engine.replace, self._maker(app), named))

    def crash_everywhere(self, scenario: Callable[[Harness], Awaitable[Any]], **options: Any) -> Report:  # noqa: ANN401 - of the function
        """``runfold.testing.crash_everywhere`` with what this harness is made of; this one need not be entered."""
        from runfold.testing.harness.crashing import crash_everywhere  # noqa: PLC0415 - it makes harnesses itself

        return crash_everywhere(scenario, **self._made_of, **options)


def _made(make: Callable[..., object], *world: object) -> App:
    app = make(*world)
    if not isinstance(app, App):
        raise TypeError(f"{make!r} gave {app!r}, not a runfold.App")
    return app


def _numbered() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"run-{number}"
