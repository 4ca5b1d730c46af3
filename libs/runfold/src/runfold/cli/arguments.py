"""Arguments and options that several commands share, and reading the JSON that a person typed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from runfold.cli.running import USAGE, CommandError

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]
ApprovalId = Annotated[
    str,
    typer.Argument(
        metavar="APPROVAL_ID", help="The open gate, as `runfold waits` shows it, or its step.", show_default=False
    ),
]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides, for the record.", show_default=False)]
Comment = Annotated[
    str | None, typer.Option("--comment", metavar="TEXT", help="Why, for the record.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.0,
        metavar="SECONDS",
        help="How long to wait until an executor has accepted or refused it. If none has, it stays durably queued, "
        "which is no failure: the exit code is 0.",
    ),
]
PATIENCE_S = 5.0


def typed_approval_id(run_id: str, text: str) -> str:
    """Give an approval's id, which is ``RUN:STEP``, for what may be the bare step."""
    return f"{run_id}:{int(text)}" if text.isascii() and text.isdigit() else text


def typed_json(option: str, text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON from the command line.

    Raises:
        CommandError: It is none; the message says where, and how to quote it.
    """
    from runfold.codec.strict_json import BadJson, loads  # noqa: PLC0415 - only when there is something to read

    try:
        return loads(text.encode(errors="surrogateescape"))
    except BadJson as error:
        message = f"{option} is not JSON: {error} (a text needs quotes of its own: {option} '\"text\"')"
        raise CommandError(message, USAGE) from None


def typed_run_id(text: str) -> str:
    """Give back a run id that the contract allows.

    Raises:
        CommandError: Otherwise; the message says what is allowed.
    """
    from runfold.core.errors import InvalidRunId  # noqa: PLC0415 - only when there is something to check
    from runfold.core.partitioning import check_run_id  # noqa: PLC0415 - the same

    try:
        return check_run_id(text)
    except InvalidRunId as error:
        message = f"--run-id: {error}"
        raise CommandError(message, USAGE) from None
