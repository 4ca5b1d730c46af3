"""The command-line options of a service: one for each of its variables, of the same name."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from runfold.service.variables import BY_FIELD


def parse(program: str, about: str, fields: Iterable[str], argv: Sequence[str] | None = None) -> dict[str, str]:
    """Parse a service's command line into field -> value as typed; prints and exits for ``--help`` and wrong usage."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=about,
        epilog="Each option stands before the variable of the same name (RUNFOLD_...) in the environment.",
        allow_abbrev=False,
    )
    for field in fields:
        variable = BY_FIELD[field]
        shown = f" [{variable.shown_default}]" if variable.shown_default is not None else ""
        parser.add_argument(
            variable.option, metavar="VALUE", dest=field, help=f"{variable.name}: {variable.meaning}{shown}"
        )
    return {field: value for field, value in vars(parser.parse_args(argv)).items() if value is not None}
