"""Finding an app by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from runfold.sdk.app import App
from runfold.sdk.errors import AppNotFound
from runfold.sdk.frames import where_raised


def load_app(reference: str) -> App:
    """Import an app by ``module:attribute``, with the current folder on ``sys.path``.

    Raises:
        AppNotFound: The text is no such reference, the module or the attribute does not exist, it is no ``App``, or its
            import ends the process. What else the author's module itself raises is raised.
    """
    try:
        return _load(reference)
    except SystemExit as error:
        said = "" if error.code is None else repr(error.code)
        message = (
            f"app {reference!r}: what it imports ends the process by sys.exit({said}){where_raised(error)}: keep what "
            'is to run as a script under `if __name__ == "__main__":`'
        )
        raise AppNotFound(message) from error


def _load(reference: str) -> App:
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        message = f"{reference!r} is no app: write module:attribute, for example my_agents:app"
        raise AppNotFound(message)
    if module_name.endswith(".py"):
        name = module_name.removesuffix(".py").replace("/", ".")
        message = f"{reference!r} is no app: write the module, not its file: {name}:{attribute}"
        raise AppNotFound(message)
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, reference, here)
    apps = ", ".join(f"{module_name}:{name}" for name, value in vars(module).items() if isinstance(value, App))
    has = f"has {apps}" if apps else "has no App"
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            message = f"app {reference!r}: module {module_name!r} has no attribute {attribute!r}; it {has}"
            raise AppNotFound(message)
        found = getattr(found, part)
    if not isinstance(found, App):
        message = f"app {reference!r} is a {type(found).__name__}, not a runfold.App; its module {has}"
        raise AppNotFound(message)
    found.loaded_from = module_name
    return found


def _import(module_name: str, reference: str, here: str) -> ModuleType:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(missing + "."):
            raise  # the author's module exists and misses something of its own
        message = (
            f"app {reference!r}: there is no module {module_name!r}; it was looked for in {here} and in what is "
            "installed (start in the folder of the module, or install its package)"
        )
        raise AppNotFound(message) from error
