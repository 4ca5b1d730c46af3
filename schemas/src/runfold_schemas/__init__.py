"""Where the schemas of Runfold's topics are: an index over data files, without parsing any of them.

In a wheel the data lies inside this package; in a checkout (an editable installation) it lies in the top-level folder
`schemas/`, two levels above. Both have the same shape below `root()`.
"""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

__all__ = ["asyncapi", "input_schemas", "log_schemas", "root", "topic_cards"]

_MARKER: Final = "log"


def root() -> Path:
    """Return the folder which holds `log/`, `inputs/`, `topics/` and `asyncapi.yaml`.

    Raises FileNotFoundError where neither the package nor the checkout around it has the data.
    """
    with as_file(files(__name__)) as package:
        candidates = (package, package.parent.parent)
    for candidate in candidates:
        if (candidate / _MARKER).is_dir():
            return candidate
    looked_in = " and ".join(str(candidate) for candidate in candidates)
    message = f"no folder {_MARKER!r} with the schemas of the log in {looked_in}"
    raise FileNotFoundError(message)


def log_schemas() -> list[Path]:
    """Return the Avro schemas of the log, one file `<type>.v<version>.avsc` each, sorted by name."""
    return sorted((root() / "log").glob("*.avsc"))


def input_schemas() -> list[Path]:
    """Return the JSON Schemas of the inputs, one file `<type>.json` each, sorted by name."""
    return sorted((root() / "inputs").glob("*.json"))


def topic_cards() -> list[Path]:
    """Return the topics' cards (owner, retention, why), one file `<topic>.yaml` each, sorted by name."""
    return sorted((root() / "topics").glob("*.yaml"))


def asyncapi() -> Path:
    """Return the AsyncAPI document of all topics."""
    return root() / "asyncapi.yaml"
