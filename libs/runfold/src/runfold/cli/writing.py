"""Commands that send an input: start, approve, reject, cancel, resume, resolve."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runfold.cli.arguments import (
    PATIENCE_S,
    ApprovalId,
    By,
    Comment,
    RunId,
    Timeout,
    typed_approval_id,
    typed_json,
    typed_run_id,
)
from runfold.cli.following import wait_for_end
from runfold.cli.running import FAILED, USAGE, CommandError, say, with_client
from runfold.cli.words import wait_notice

if TYPE_CHECKING:
    from runfold.client import Client, Settled, Submitted

_MENDS = {
    "unknown_run": "`runfold list` shows the runs that exist",
    "run_exists": "choose another --run-id",
    "version_mismatch": "`--accept-version` accepts it",
}

# A hint that takes longer is none.
_HINT_S = 3.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("start")(start)
    app.command("approve")(approve)
    app.command("reject")(reject)
    app.command("resume")(resume)
    app.command("resolve")(resolve)
    app.command("cancel")(cancel)


def start(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of an agent of the app.", show_default=False)],
    *,
    input_: Annotated[
        str, typer.Option("--input", metavar="JSON", help="What the run is about: any JSON.", show_default=False)
    ],
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", metavar="ID", help="Its id, never used before; else one is made.", show_default=False),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait for the end; the output goes to stdout, what happens and what it waits for to stderr."
        ),
    ] = False,
    wait_timeout: Annotated[
        float | None,
        typer.Option(
            "--wait-timeout",
            min=0.0,
            metavar="SECONDS",
            help="With --wait: how long, else without limit; then the exit code is 1 and the run goes on.",
            show_default=False,
        ),
    ] = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Start a run. Prints its id unless it was refused, or with --wait its output."""
    if wait_timeout is not None and not wait:
        _refuse("--wait-timeout is for --wait")
    value = _checked(lambda: typed_json("--input", input_))
    chosen = _checked(lambda: typed_run_id(run_id)) if run_id is not None else f"run-{secrets.token_hex(6)}"

    source = ctx.get_parameter_source("timeout")
    if wait and wait_timeout is None and source is not None and source.name == "COMMANDLINE":
        say(
            f"--timeout {timeout:g} is for an executor's taking it; the end is waited for without limit: "
            "--wait-timeout SECONDS sets one"
        )

    async def body(client: Client) -> None:
        submitted = await client.start(agent, value, run_id=chosen)
        try:
            await (_report(client, submitted, timeout) if wait else report_started(client, submitted, timeout))
            if wait:
                await wait_for_end(client, chosen, wait_timeout)
        except asyncio.CancelledError:
            say(f"run {chosen} goes on without this command: see `runfold events {chosen} --follow`")
            raise

    with_client(ctx, body)


def approve(
    ctx: typer.Context,
    run: RunId,
    approval_id: ApprovalId,
    *,
    by: By,
    comment: Comment = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Let a call happen that waits for an approval."""
    gate = typed_approval_id(run, approval_id)
    _send(ctx, timeout, lambda client: client.approve(run, gate, by=by, comment=comment))


def reject(
    ctx: typer.Context,
    run: RunId,
    approval_id: ApprovalId,
    *,
    by: By,
    comment: Comment = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Refuse a call that waits for an approval; the model is told."""
    gate = typed_approval_id(run, approval_id)
    _send(ctx, timeout, lambda client: client.reject(run, gate, by=by, comment=comment))


def resume(
    ctx: typer.Context,
    run: RunId,
    *,
    by: By,
    accept_version: Annotated[
        bool, typer.Option("--accept-version", help="Let the running code go on with a run of another version.")
    ] = False,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Let a run go on that an error or another version stopped."""
    _send(ctx, timeout, lambda client: client.resume(run, by=by, accept_version=accept_version))


def resolve(  # noqa: PLR0913 - one per option of the contract
    ctx: typer.Context,
    run: RunId,
    step: Annotated[int, typer.Argument(metavar="STEP", min=1, help="The call in doubt.", show_default=False)],
    *,
    by: By,
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="It happened, and this is its result.", show_default=False),
    ] = None,
    absent: Annotated[bool, typer.Option("--absent", help="It never happened: run it again.")] = False,
    error: Annotated[
        str | None,
        typer.Option(
            "--error", metavar="TEXT", help="It failed without an effect: tell the model.", show_default=False
        ),
    ] = None,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """Say what became of a call whose outcome nobody knows."""
    given = [
        name for name, value in (("result", result), ("absent", absent or None), ("error", error)) if value is not None
    ]
    if len(given) != 1:
        _refuse("say exactly one of --result, --absent and --error")
    value = None if result is None else _checked(lambda: typed_json("--result", result))
    _send(ctx, timeout, lambda client: client.resolve(run, step, given[0], by=by, result=value, error=error))


def cancel(
    ctx: typer.Context,
    run: RunId,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.", show_default=False)],
    by: By,
    timeout: Timeout = PATIENCE_S,
) -> None:
    """End a run: nothing new is started, open calls are waited for."""
    _send(ctx, timeout, lambda client: client.cancel(run, reason=reason, by=by))


def _send(ctx: typer.Context, timeout: float, submit: Callable[[Client], Awaitable[Submitted]]) -> None:
    async def body(client: Client) -> None:
        await _report(client, await submit(client), timeout)

    with_client(ctx, body)


async def report_started(client: Client, submitted: Submitted, timeout_s: float) -> None:
    """Say what became of a start, and print the run's id; not that of a refused one, which names another run or none.

    An agent that no executor knows is told at once: it may be misspelt.

    Raises:
        CommandError: It was refused.
    """
    is_refused = False
    settled = None
    try:
        settled = await _report(client, submitted, timeout_s)
    except CommandError:
        is_refused = True
        raise
    finally:  # also where nobody could tell, or Ctrl-C came first: the start is durable, and the id may be a made one
        if not is_refused:
            sys.stdout.write(submitted.run_id + "\n")
            sys.stdout.flush()
    if settled is not None:
        for wait in await still_open(client, submitted.run_id):
            if wait["reason"] == "unknown_agent":
                say(wait_notice(wait))


async def _report(client: Client, submitted: Submitted, timeout_s: float) -> Settled | None:
    """Say and give what became of an input, None if nothing in time; a refused one ends the command."""
    settled = await client.settled(submitted, timeout_s=timeout_s)
    if settled is not None and settled.is_dead:
        waits = await still_open(client, submitted.run_id) if settled.reason == "not_open" else ()
        raise CommandError(refusal(settled, waits), FAILED)
    say(outcome(submitted, settled, timeout_s))
    return settled


async def still_open(client: Client, run_id: str) -> list[dict[str, Any]]:
    """Give a run's open waits as a hint; none where they cannot be read at once: something else has to be said."""
    try:
        async with asyncio.timeout(_HINT_S):
            found: list[dict[str, Any]] = (await client.show(run_id))["waits"]
    except Exception:  # noqa: BLE001 - whatever is wrong with them, a hint does not change what became of the input
        return []
    return found


def refusal(settled: Settled, waits: Sequence[Mapping[str, Any]] = ()) -> str:
    """Say why an input was refused, the mend, and what the run waits for instead."""
    mend = _MENDS.get(settled.reason or "")
    detail = f": {settled.detail}" if settled.detail else ""
    still = ", ".join(f"{wait['wait_id']} ({wait['reason']})" for wait in waits)
    return "; ".join(part for part in (f"refused ({settled.reason}){detail}", mend, still and f"open: {still}") if part)


def outcome(submitted: Submitted, settled: Settled | None, timeout_s: float) -> str:
    """Say what became of an input that was not refused."""
    if settled is None:
        at = f"{submitted.published.topic}[{submitted.published.partition}]@{submitted.published.offset}"
        if submitted.place is None:
            return (
                f"it is durably queued at {at}; Postgres could not be reached, so what becomes of it is not known yet"
            )
        return (
            f"it is durably queued at {at}, not refused: no executor has handled it within {timeout_s:g} s (after a "
            f"crash the take-over takes about 10 s); see `runfold events {shlex.quote(submitted.run_id)}` or "
            "`runfold dead list`"
        )
    if settled.outcome == "accepted":
        return f"accepted: {settled.event} (seq {settled.seq})"
    if settled.outcome == "duplicate":
        return "no effect: it had been handled before"
    return settled.outcome


def _checked(read: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return read()
    except CommandError as error:
        _refuse(str(error))


def _refuse(message: str) -> None:
    say(f"runfold: {message}")
    raise typer.Exit(USAGE)
