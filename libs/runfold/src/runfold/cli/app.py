"""The command ``runfold``: its settings options and its commands. Everything heavy is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from runfold.cli import installation, mending, reading, writing
from runfold.service.variables import BY_FIELD, VARIABLES

_PANEL = "Settings (each before the variable of the same name; they may stand anywhere on the line)"

app = typer.Typer(
    name="runfold",
    help="Durable LLM agents on Kafka, Postgres and an object store: start runs, decide gates, see what happened.",
    epilog="Exit codes: 0 done, 1 the thing asked about failed, 2 wrong usage, 3 a dependency could not be reached.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (installation, writing, reading, mending):
    group.register(app)


def _setting(field: str) -> Any:  # noqa: ANN401 - so typer.Option is annotated
    variable = BY_FIELD[field]
    shown = f" [dim]\\[{variable.shown_default}][/dim]" if variable.shown_default else ""
    return typer.Option(
        variable.option,
        metavar="VALUE",
        help=f"{variable.name}: {variable.meaning}{shown}",
        rich_help_panel=_PANEL,
        show_default=False,
    )


@app.callback()
def settings(  # noqa: PLR0913 - one per variable of the contract
    ctx: typer.Context,
    *,
    kafka_bootstrap: Annotated[str | None, _setting("kafka_bootstrap")] = None,
    kafka_config: Annotated[str | None, _setting("kafka_config")] = None,
    topic_prefix: Annotated[str | None, _setting("topic_prefix")] = None,
    partitions: Annotated[str | None, _setting("partitions")] = None,
    replication_factor: Annotated[str | None, _setting("replication_factor")] = None,
    postgres_dsn: Annotated[str | None, _setting("postgres_dsn")] = None,
    postgres_schema: Annotated[str | None, _setting("postgres_schema")] = None,
    blob_url: Annotated[str | None, _setting("blob_url")] = None,
    app_name: Annotated[str | None, _setting("app")] = None,
    revision: Annotated[str | None, _setting("revision")] = None,
    snapshot_every: Annotated[str | None, _setting("snapshot_every")] = None,
    inline_limit: Annotated[str | None, _setting("inline_limit")] = None,
    metrics_host: Annotated[str | None, _setting("metrics_host")] = None,
    metrics_port: Annotated[str | None, _setting("metrics_port")] = None,
) -> None:
    """Keep the settings that were given, for the command that follows; one that it does not use is ignored."""
    given = {
        "kafka_bootstrap": kafka_bootstrap,
        "kafka_config": kafka_config,
        "topic_prefix": topic_prefix,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "postgres_dsn": postgres_dsn,
        "postgres_schema": postgres_schema,
        "blob_url": blob_url,
        "app": app_name,
        "revision": revision,
        "snapshot_every": snapshot_every,
        "inline_limit": inline_limit,
        "metrics_host": metrics_host,
        "metrics_port": metrics_port,
    }
    ctx.obj = {field: value for field, value in given.items() if value is not None}


def settings_first(argv: Sequence[str]) -> list[str]:
    """Move the settings options of a command line to its front, where the parser expects them."""
    options = {variable.option for variable in VARIABLES}
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*front, *rest, word, *words]
        name, _, value = word.partition("=")
        if name not in options:
            rest.append(word)
        elif value:
            front.append(word)
        else:
            front += [word, *[following for following in (next(words, None),) if following is not None]]
    return front + rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    try:
        app(args=settings_first(sys.argv[1:] if argv is None else argv), prog_name="runfold")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0
