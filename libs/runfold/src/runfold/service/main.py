"""The frame of a service: read settings, log, watch the loop, serve health, run until a signal says stop.

Exit codes: 0 stopped as asked; 1 it failed; 2 settings or installation are wrong, and the message says how to mend
them; 70 the event loop hung.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

import structlog
import uvloop

from runfold.runtime.resting import sleep_unless
from runfold.service import garbage, health, logs, options
from runfold.service.errors import InstallationError
from runfold.service.health import Health
from runfold.service.metrics import Metrics
from runfold.service.settings import ServiceSettings, SettingsError, load
from runfold.service.watchdog import Watchdog

FAILED, REFUSED = 1, 2
RETRY_S = 3.0
STOP_S = 40.0
"""Bound of a clean stop: the drain of a hand-over (20 s), leaving the group, the last acknowledgements."""

T = TypeVar("T")
S = TypeVar("S", bound=ServiceSettings)


class Stopped(Exception):
    """The service was told to stop before it was ready."""


class StopTimeout(Exception):
    """The service did not stop in time."""

    def __init__(self) -> None:
        super().__init__(f"did not stop within {STOP_S:g} s; what was open is left to the next owner")


class Kit:
    """What a running service has at hand.

    Attributes:
        health: What it needs to be ready.
        metrics: Its counters.
        stop: Set by SIGTERM and SIGINT.
    """

    def __init__(self, health_: Health, metrics: Metrics) -> None:
        self.health = health_
        self.metrics = metrics
        self.stop = asyncio.Event()
        self._bound: asyncio.Timeout | None = None
        self.log: structlog.typing.FilteringBoundLogger = structlog.get_logger("runfold.service")

    async def reach(
        self,
        name: str,
        attempt: Callable[[], Awaitable[T]],
        unreachable: type[Exception] | tuple[type[Exception], ...],
        *,
        variable: str,
    ) -> T:
        """Try until a dependency answers, every few seconds, saying so each time.

        Args:
            name: What it is called in /readyz, e.g. ``kafka``.
            attempt: Asks it for something; its result is given back.
            unreachable: What it raises while it cannot be reached; anything else is raised here.
            variable: Where the operator may have written the wrong address.

        Raises:
            Stopped: The operator asked for it meanwhile.
        """
        while not self.stop.is_set():
            try:
                found = await attempt()
            except unreachable as error:
                self.health.lacks(name, str(error))
                self.log.warning(
                    "dependency_away", dependency=name, variable=variable, error=str(error), retry_s=RETRY_S
                )
                await sleep_unless(self.stop, RETRY_S)
            else:
                self.health.reached(name)
                return found
        raise Stopped

    async def until_stopped(self, work: Coroutine[Any, Any, None], leave: Callable[[], Awaitable[None]]) -> None:
        """Run the engine; when the service is told to stop, ask it to ``leave`` and wait until it has.

        Raises:
            ExceptionGroup: What either of the two raised.
        """
        garbage.spare_start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(work, name="engine")
            stopped = group.create_task(self.stop.wait(), name="stop")
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await leave()
            stopped.cancel()

    async def bounded(self, serving: Awaitable[None]) -> None:
        """Run the service; once it was told to stop it has ``STOP_S`` seconds to end.

        Raises:
            StopTimeout: It has not.
        """
        try:
            async with asyncio.timeout(None) as self._bound:
                await serving
        except TimeoutError:
            if self._bound is None or not self._bound.expired():
                raise
            raise StopTimeout from None
        finally:
            self._bound = None

    def tell_to_stop(self) -> None:
        """What SIGTERM and SIGINT do; saying it again changes nothing."""
        if self.stop.is_set():
            return
        self.stop.set()
        if self._bound is not None:
            self.log.info("stopping")
            self._bound.reschedule(asyncio.get_running_loop().time() + STOP_S)


class Service(Generic[S]):
    """One service: its name, its settings and its wiring.

    Args:
        name: Of the command and in the logs, e.g. ``runfold-step-executor``.
        about: One line for ``--help``.
        settings: What it reads.
        serve: Wires the parts and runs them until ``kit.stop`` is set.

    Attributes:
        needs: What /readyz waits for.
    """

    def __init__(
        self,
        name: str,
        about: str,
        settings: type[S],
        serve: Callable[[S, Kit], Awaitable[None]],
        *,
        needs: Sequence[str],
    ) -> None:
        self._name = name
        self._about = about
        self._kind = settings
        self._serve = serve
        self.needs = needs

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the service; gives the exit code."""
        garbage.spare_imports()
        given = options.parse(self._name, self._about, self._kind.model_fields, argv)
        try:
            settings = load(self._kind, given)
        except SettingsError as error:
            sys.stderr.write(f"{self._name}: {error}\n".replace("\n", "\n  ").rstrip(" "))
            return REFUSED
        logs.configure(self._name)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(self._run(settings))
        except SystemExit as error:  # of the author's code, which would end the service as if all were well
            structlog.get_logger().exception("failed", error=f"SystemExit: {error.code!r} was raised in a service")
            return FAILED

    async def _run(self, settings: S) -> int:
        kit = Kit(Health(self.needs), Metrics())
        _stop_on_signals(kit)
        kit.log.info("starting", settings=settings.model_dump(mode="json", exclude={"postgres_dsn"}))
        try:
            async with Watchdog(), garbage.looked_through(), _served(settings, kit):
                await kit.bounded(self._serve(settings, kit))
        except Stopped:
            kit.log.info("stopped_before_ready")
        except InstallationError as error:
            kit.log.error("start_refused", error=str(error))  # noqa: TRY400 - the message is the whole story
            return REFUSED
        except Exception as error:  # the last resort of a process: say why, and exit so that it is started again
            kit.log.exception("failed", error=_told(error))
            return FAILED
        else:
            kit.log.info("stopped")
        return 0


def _stop_on_signals(kit: Kit) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, kit.tell_to_stop)


@asynccontextmanager
async def _served(settings: ServiceSettings, kit: Kit) -> AsyncIterator[None]:
    host, port = settings.metrics_host, settings.metrics_port
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(health.served(host, port, kit.health, kit.metrics.exposition))
        except OSError as error:
            message = (
                f"RUNFOLD_METRICS_HOST, RUNFOLD_METRICS_PORT: {host} port {port} cannot be had: {error.strerror}; "
                "choose another one"
            )
            raise InstallationError(message) from error
        yield


def _told(error: BaseException) -> str:
    """Say what failed; of a group, what its members say."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(member) for member in error.exceptions)
    return str(error) or type(error).__name__
