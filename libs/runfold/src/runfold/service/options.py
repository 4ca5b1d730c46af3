"""The command-line options of a service: one for every variable, of the same name, as in the environment."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from runfold.service.variables import VARIABLES


def parse(program: str, about: str, fields: Collection[str], argv: Sequence[str] | None = None) -> dict[str, str]:
    """Parse a service's command line into field -> value as typed; prints and exits for ``--help`` and wrong usage.

    Args:
        program, about: For ``--help``.
        fields: What the service uses; an option for any other variable is accepted and ignored, so that one set of
            options serves every command.
        argv: Without the program's name; None: the process's own.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=about,
        epilog="Each option stands before the variable of the same name (RUNFOLD_...) in the environment.",
        allow_abbrev=False,
    )
    ignored = parser.add_argument_group("accepted and not used here, as in the environment")
    for variable in VARIABLES:
        shown = f" [{variable.shown_default}]" if variable.shown_default is not None else ""
        (parser if variable.field in fields else ignored).add_argument(
            variable.option, metavar="VALUE", dest=variable.field, help=f"{variable.name}: {variable.meaning}{shown}"
        )
    given = vars(parser.parse_args(argv))
    return {field: value for field, value in given.items() if value is not None and field in fields}
