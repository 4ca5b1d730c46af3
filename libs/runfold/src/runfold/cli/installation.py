"""Commands about the installation: setup and check."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

from runfold.cli.arguments import AsJson
from runfold.cli.running import FAILED, UNREACHABLE, given_settings, with_settings

if TYPE_CHECKING:
    from runfold.cli.finding import Finding
    from runfold.service.settings import ClientSettings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("setup")(setup)
    app.command("check")(check)


def setup(ctx: typer.Context) -> None:
    """Make the topics and the tables, or bring them up to date. Safe to run twice and at once.

    Refuses what would lose data: another partition count, too short a retention.
    """

    async def body(settings: ClientSettings) -> None:
        from runfold.cli.checks import set_up  # noqa: PLC0415 - the adapters are heavy

        async for line in set_up(settings):
            sys.stdout.write(line + "\n")

    with_settings(ctx, body)


def check(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """Check every setting and dependency; say what is wrong and how to mend it."""
    from runfold.cli.checks import findings, wrong_settings  # noqa: PLC0415 - the adapters are heavy
    from runfold.service.settings import SettingsError  # noqa: PLC0415 - pydantic is heavy

    try:
        given_settings(ctx)
    except SettingsError as error:
        _report(wrong_settings(error), as_json=as_json)
        raise typer.Exit(FAILED) from None

    found: list[Finding] = []

    async def body(settings: ClientSettings) -> None:
        found.extend([finding async for finding in findings(settings)])

    with_settings(ctx, body)
    _report(found, as_json=as_json)
    statuses = {finding.status for finding in found}
    if "unreachable" in statuses:
        raise typer.Exit(UNREACHABLE)
    if "wrong" in statuses:
        raise typer.Exit(FAILED)


def _report(found: list[Finding], *, as_json: bool) -> None:
    from runfold.cli import render  # noqa: PLC0415 - rich is heavy

    rows = [finding.view() for finding in found]
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    else:
        render.show("checks", rows)
