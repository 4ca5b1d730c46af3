"""How a command runs: settings, client, and from exceptions to one line and an exit code."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from runfold.client import Client
    from runfold.service.settings import ClientSettings

FAILED, USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130


class CommandError(Exception):
    """A command ends with a message on stderr and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def say(text: str) -> None:
    """Tell a person something: on stderr, since stdout is for what was asked."""
    sys.stderr.write(text + "\n")


def with_client(ctx: typer.Context, body: Callable[[Client], Awaitable[None]], *, needs_kafka: bool = True) -> None:
    """Run the body of a command with a connected client."""

    async def run(settings: ClientSettings) -> None:
        from runfold.client import Client  # noqa: PLC0415 - heavy
        from runfold.service.reach import knock_at_kafka  # noqa: PLC0415 - heavy

        if needs_kafka:
            await knock_at_kafka(settings)  # Kafka's clients would try again for long; a person wants to know at once
        async with Client.connect(settings) as client:
            await body(client)

    with_settings(ctx, run)


def with_settings(ctx: typer.Context, body: Callable[[ClientSettings], Awaitable[None]]) -> None:
    """Run the body of a command with the settings; ends the process with the contract's exit codes."""
    settings = _settings(ctx)

    async def run() -> None:
        from runfold.cli.explain import diagnosed  # noqa: PLC0415 - imports the adapters

        try:
            await body(settings)
        except Exception as error:
            reason = await diagnosed(error, settings)
            if reason is error:
                raise
            raise reason from error

    try:
        with _quiet():
            asyncio.run(run())
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except CommandError as error:
        _end(str(error), error.code)
    except Exception as error:
        told = explain(error, settings)
        if told is None:
            raise
        _end(*told)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what libraries complain about: it ends in the error that is printed."""
    loggers = [logging.getLogger(name) for name in ("psycopg.pool", "runfold.kafka")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def explain(error: Exception, settings: ClientSettings) -> tuple[str, int] | None:
    """Give the line and the exit code for what a command may run into; None: a defect, which shows its traceback."""
    from runfold.cli.explain import explained  # noqa: PLC0415 - imports the adapters' exceptions

    return explained(error, settings)


def given_settings(ctx: typer.Context) -> ClientSettings:
    """Read the settings.

    Raises:
        SettingsError: They are not usable.
    """
    from runfold.service.settings import ClientSettings, load  # noqa: PLC0415 - pydantic is heavy

    return load(ClientSettings, ctx.obj)


def _settings(ctx: typer.Context) -> ClientSettings:
    from runfold.service.settings import SettingsError  # noqa: PLC0415 - pydantic is heavy

    try:
        return given_settings(ctx)
    except SettingsError as error:
        _end(str(error), USAGE)


def _end(message: str, code: int) -> NoReturn:
    say("\n".join(f"runfold: {line}" for line in message.splitlines()))
    raise typer.Exit(code)
