"""The operator's command ``runfold``, written on ``runfold.Client``."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code.

    Raises:
        SystemExit: A package that it needs is not installed; with a message that says so.
    """
    try:
        from runfold.cli.app import main as run  # noqa: PLC0415 - whose imports may not be installed
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "runfold":
            raise
        message = f"runfold: {error.name} is not installed: the command needs `pip install 'runfold[cli]'`"
        raise SystemExit(message) from None
    return run(argv)
