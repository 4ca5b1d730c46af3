"""Commands that only read: list, show, events, state, waits, dead list."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runfold.cli.arguments import AsJson, RunId
from runfold.cli.event_lines import event_header, event_line, is_cut
from runfold.cli.running import say, with_client

if TYPE_CHECKING:
    from runfold.client import Client

dead = typer.Typer(help="Inputs that could not be accepted.", no_args_is_help=True)


class StatusChoice(StrEnum):
    """Statuses of a run, as typed; the core's own, without importing it at start-up."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list")(list_runs)
    app.command("show")(show)
    app.command("events")(events)
    app.command("state")(state)
    app.command("waits")(waits)
    dead.command("list")(list_dead)
    app.add_typer(dead, name="dead")


def list_runs(
    ctx: typer.Context,
    *,
    status: Annotated[StatusChoice | None, typer.Option("--status", help="Only these.", show_default=False)] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only of this agent.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""

    async def body(client: Client) -> None:
        rows = await client.list(status=None if status is None else status.value, agent=agent, limit=limit)
        _show(rows, "runs", as_json=as_json)

    with_client(ctx, body, needs_kafka=False)


def show(
    ctx: typer.Context,
    run: RunId,
    *,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Also who decided what; reads the whole run.", show_default=False)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one run: where it stands, what it waits for, what it cost."""

    async def body(client: Client) -> None:
        found = await client.show(run)
        if decisions:
            found = {**found, "decisions": await client.decisions(run)}
        _show(found, "run", as_json=as_json)

    with_client(ctx, body)


def events(
    ctx: typer.Context,
    run: RunId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until the end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened in a run; with --json one object a line."""

    async def body(client: Client) -> None:
        is_first, some_cut = True, False
        async with aclosing(client.events(run, follow=follow)) as found:
            async for event in found:
                if as_json:
                    _line(event)
                    continue
                if is_first:
                    _write(event_header())
                    is_first = False
                line = event_line(event)
                some_cut = some_cut or is_cut(line)
                _write(line)
        if some_cut:
            say("long texts are cut; `--json` shows them whole")

    with_client(ctx, body)


def state(
    ctx: typer.Context,
    run: RunId,
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", min=0, metavar="SEQ", help="After this event; else the last.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fold a run's events and show the whole state."""

    async def body(client: Client) -> None:
        _show(await client.state(run, at=at), "state", as_json=as_json)

    with_client(ctx, body)


def waits(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only of this run.", show_default=False)] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List what runs wait for, oldest first."""

    async def body(client: Client) -> None:
        _show(await client.waits(run), "waits", as_json=as_json)

    with_client(ctx, body, needs_kafka=False)


def list_dead(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the inputs that could not be accepted, and why."""

    async def body(client: Client) -> None:
        _show(await client.dead(), "dead", as_json=as_json)

    with_client(ctx, body)


def _show(value: Any, what: str, *, as_json: bool) -> None:  # noqa: ANN401 - any JSON value
    from runfold.cli import render  # noqa: PLC0415 - rich is heavy

    if as_json:
        _write(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        render.show(what, value)


def _line(value: Any) -> None:  # noqa: ANN401 - any JSON value
    _write(json.dumps(value, ensure_ascii=False))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
